import type { Decision } from './decision.js'
import { invalid, thrown } from './errors.js'
import { milliseconds, type Duration } from './duration.js'
import { Writer, type Key } from './key.js'
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

/** The numbers that stand first, and those that a check is told in; `src/limiter.rs` reads them. */
const FIRST = 3
const HEAD = 9
/** So many checks leave at once at most. */
const MOST = 128
const BYTES_AT = (FIRST + HEAD * MOST) * 8
const SIZE = 16_384
/** So many lists of rules are known at once. */
const MOST_TARGETS = 1_000

// As a microtask, which no test runner's clock holds back; queueMicrotask is one that they take, and dearer.
const now = Promise.resolve()
const soon = (work: () => void): void => void now.then(work)

/** @internal The checks of one tick, which cross to the addon in one call. */
export class Batch {
  readonly #core: Core
  readonly #targets = new Map<string, number>()
  readonly #loop = loop()
  readonly #writer = new Writer(SIZE, BYTES_AT)
  #submit!: () => number
  #shared: Buffer | undefined
  #count = 0
  #lastRule: string | undefined
  #lastTarget = 0

  constructor(core: Core) {
    this.#core = core
  }

  /** Adds a check, or a peek; it leaves when this tick's code has run. */
  add(
    isPeek: boolean,
    rules: string | readonly string[],
    key: Key,
    options: CheckOptions | undefined,
  ): Promise<Decision> {
    return new Promise((resolve, reject) => {
      try {
        this.#write(isPeek, rules, key, options)
      } catch (error) {
        return reject(thrown(error))
      }
      this.#writer.numbers[FIRST + this.#count * HEAD] = this.#loop.ticket({ resolve, reject })
      if (++this.#count === 1) soon(this.#flush)
      else if (this.#count === MOST) this.#flush()
    })
  }

  /**
   * Decides a check at once.
   * @throws TidegateError what `add` would reject with, and `invalid_request` where a server would have to be asked.
   */
  now(rules: string | readonly string[], key: Key, options: CheckOptions | undefined): Decision {
    this.#flush()
    let decided: Decision | undefined
    let failure: unknown
    this.#write(false, rules, key, options)
    const call: Call = { resolve: (decision: Decision) => (decided = decision), reject: (error) => (failure = error) }
    this.#writer.numbers[FIRST] = this.#loop.ticket(call)
    this.#leave(1, true)
    if (decided === undefined) throw failure
    return decided
  }

  readonly #flush = (): void => {
    const count = this.#count
    if (count === 0) return
    this.#count = 0
    this.#leave(count, false)
  }

  #leave(count: number, isHere: boolean): void {
    const { bytes, numbers } = this.#writer
    if (bytes !== this.#shared) {
      // It has grown.
      this.#shared = bytes
      this.#submit = this.#loop.queue.submitter(this.#core, bytes)
    }
    numbers[0] = count
    numbers[1] = BYTES_AT
    numbers[2] = isHere ? 1 : 0
    // The next ones are written over these.
    this.#writer.used = BYTES_AT
    this.#loop.read(this.#submit())
  }

  #write(isPeek: boolean, rules: string | readonly string[], key: Key, options: CheckOptions | undefined): void {
    const writer = this.#writer
    const target = rules === this.#lastRule ? this.#lastTarget : this.#target(rules)
    const start = writer.used
    const at = FIRST + this.#count * HEAD
    let cost = 1
    let deadline = -1
    let limitsLength = -1
    let idLength = -1
    try {
      const parts = writer.key(key)
      const keyLength = writer.used - start
      if (options) {
        judge(options)
        if (options.cost !== undefined) cost = options.cost
        if (options.deadline !== undefined) deadline = milliseconds(options.deadline, 'deadline')
        if (options.limits !== undefined) limitsLength = writer.part(options.limits)
        if (options.requestId !== undefined) idLength = writer.part(options.requestId)
      }
      const { numbers } = writer
      numbers[at + 1] = target
      numbers[at + 2] = cost
      numbers[at + 3] = isPeek ? 1 : 0
      numbers[at + 4] = deadline
      numbers[at + 5] = keyLength
      numbers[at + 6] = parts
      numbers[at + 7] = limitsLength
      numbers[at + 8] = idLength
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
    // No name has a control character in it.
    const name = isOne ? rules : `\n${rules.join('\n')}`
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

/** @internal Refuses what is of another type: core judges the rest. */
export function judge({ cost, limits, requestId }: CheckOptions): void {
  if (cost !== undefined && typeof cost !== 'number') {
    throw invalid(`the cost ${String(cost)} is no number; write a whole number from 1`)
  }
  if (limits !== undefined && typeof limits !== 'string') throw invalid("limits are text, such as '1000/m'")
  if (requestId !== undefined && typeof requestId !== 'string' && !(requestId instanceof Uint8Array)) {
    throw invalid('a request id is text or bytes; pass String(...) of it')
  }
}
