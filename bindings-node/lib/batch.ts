import type { Decision } from './decision.js'
import { invalid, thrown } from './errors.js'
import { milliseconds, type Duration } from './duration.js'
import type { Key } from './key.js'
import { Crossing, soon } from './crossing.js'
import { loop, type Call } from './loop.js'
import type { Core } from './native.js'

/** What a check may be told beside its rule and key. */
export interface CheckOptions {
  /** The units that it takes: a whole number from 1 to 10,000,000 (10,000 with a sliding_window_log). 1 unless said. */
  cost?: number | undefined
  /** Limits instead of the rule's own, such as a customer's `'1000/m'`. */
  limits?: string | undefined
  /** What the application calls the request, 1 to 200 bytes: a live one in a sliding_window_log is not charged again. */
  requestId?: string | Uint8Array | undefined
  /** How long the store may take, 1 ms to 60 s; then the rule's `on_error` decides. The limiter's unless said. */
  deadline?: Duration | undefined
}

/** The numbers of a check; `src/limiter.rs` reads them. */
const HEAD = 9
const OPTIONS: readonly (keyof CheckOptions)[] = ['cost', 'limits', 'requestId', 'deadline']
/** So many checks leave at once at most. */
const MOST = 128
/** So many lists of rules are known at once. */
const MOST_TARGETS = 1_000

/** @internal The checks of one tick, which cross to the addon in one call. */
export class Batch {
  readonly #core: Core
  readonly #targets = new Map<string, number>()
  readonly #loop = loop()
  readonly #crossing: Crossing
  #lastRule: string | undefined
  #lastTarget = 0

  constructor(core: Core) {
    this.#core = core
    this.#crossing = new Crossing(HEAD, MOST, (memory) => this.#loop.queue.submitter(core, memory))
  }

  /** Adds a check, or a peek; it leaves when this tick's code has run. */
  add(
    isPeek: boolean,
    rules: string | readonly string[],
    key: Key,
    options: CheckOptions | undefined,
  ): Promise<Decision> {
    return new Promise((resolve, reject) => {
      const crossing = this.#crossing
      try {
        this.#write(isPeek, rules, key, options)
      } catch (error) {
        return reject(thrown(error))
      }
      crossing.writer.numbers[crossing.place] = this.#loop.ticket({ resolve, reject })
      if (++crossing.count === 1) soon(this.#flush)
      else if (crossing.isFull) crossing.leave()
    })
  }

  /**
   * Decides a check at once.
   * @throws TidegateError what `add` would reject with, and `invalid_request` where a server would have to be asked.
   */
  now(rules: string | readonly string[], key: Key, options: CheckOptions | undefined): Decision {
    const crossing = this.#crossing
    let decided: Decision | undefined
    let failure: unknown
    this.#write(false, rules, key, options, true)
    const call: Call = { resolve: (decision: Decision) => (decided = decision), reject: (error) => (failure = error) }
    crossing.writer.numbers[crossing.place] = this.#loop.ticket(call)
    crossing.count = 1
    crossing.leave(true)
    if (decided === undefined) throw failure
    return decided
  }

  readonly #flush = (): void => {
    if (this.#crossing.count > 0) this.#crossing.leave()
  }

  #write(
    isPeek: boolean,
    rules: string | readonly string[],
    key: Key,
    options: CheckOptions | undefined,
    isAlone = false,
  ): void {
    let cost = 1
    let deadline = -1
    let limits: string | undefined
    let requestId: string | Uint8Array | undefined
    if (options) {
      // Before anything is written: what is looked up may be the caller's code, and make checks.
      judge(options, OPTIONS)
      ;({ cost = 1, limits, requestId } = options)
      const wait = options.deadline
      if (wait !== undefined) deadline = milliseconds(wait, 'deadline')
    }
    const target = rules === this.#lastRule ? this.#lastTarget : this.#target(rules)
    if (isAlone) this.#flush()
    // Only now: to learn a target may have let those leave that were written.
    const { writer, place } = this.#crossing
    const start = writer.used
    try {
      const parts = writer.key(key)
      const keyLength = writer.used - start
      const limitsLength = limits === undefined ? -1 : writer.part(limits)
      const idLength = requestId === undefined ? -1 : writer.part(requestId)
      const { numbers } = writer
      numbers[place + 1] = target
      numbers[place + 2] = cost
      numbers[place + 3] = isPeek ? 1 : 0
      numbers[place + 4] = deadline
      numbers[place + 5] = keyLength
      numbers[place + 6] = parts
      numbers[place + 7] = limitsLength
      numbers[place + 8] = idLength
    } catch (error) {
      writer.used = start
      throw error
    }
  }

  /** The number under which the addon knows these rules. */
  #target(rules: string | readonly string[]): number {
    const isOne = typeof rules === 'string'
    if (!isOne && !(Array.isArray(rules) && rules.every((rule) => typeof rule === 'string'))) {
      throw invalid('a rule is named by text, and several by a list of it')
    }
    // No list is called as another, nor as one rule is, whatever callers make up.
    const name = isOne && !rules.startsWith('\n') ? rules : `\n${JSON.stringify(rules)}`
    let target = this.#targets.get(name)
    if (target === undefined) {
      if (this.#targets.size === MOST_TARGETS) this.#forgetTargets()
      target = this.#core.target(isOne ? [rules] : [...rules])
      this.#targets.set(name, target)
    }
    if (isOne) {
      this.#lastRule = rules
      this.#lastTarget = target
    }
    return target
  }

  /** Names that callers make up must not fill the memory. */
  #forgetTargets(): void {
    this.#flush()
    this.#targets.clear()
    this.#lastRule = undefined
    this.#core.forgetTargets()
  }
}

/** @internal Refuses what is not known, which would be ignored, and what is of another type: core judges the rest. */
export function judge(options: CheckOptions, names: readonly string[]): void {
  if (typeof options !== 'object') throw invalid(`options are an object, and not ${typeof options}`)
  for (const name in options) {
    if (!names.includes(name)) throw invalid(`${name} is no option here; there are ${names.join(', ')}`)
  }
  const { cost, limits, requestId } = options
  if (cost !== undefined && typeof cost !== 'number') {
    throw invalid(`the cost ${String(cost)} is no number; write a whole number from 1`)
  }
  if (limits !== undefined && typeof limits !== 'string') throw invalid("limits are text, such as '1000/m'")
  if (requestId !== undefined && typeof requestId !== 'string' && !(requestId instanceof Uint8Array)) {
    throw invalid('a request id is text or bytes; pass String(...) of it')
  }
}
