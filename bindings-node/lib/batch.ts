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

/** The numbers that a check is told in; `src/limiter.rs` reads them. */
const HEAD = 9
/** So many checks leave at once at most. */
const MOST = 512
/** So many lists of rules are known at once. */
const MOST_TARGETS = 1_000
const NONE: CheckOptions = {}

// Taken before a test runner puts its own in their place.
const soon = queueMicrotask

/** @internal The checks of one tick, which cross to the addon in one call. */
export class Batch {
  readonly #core: Core
  readonly #targets = new Map<string, number>()
  readonly #heads = new Float64Array(HEAD * MOST)
  readonly #writer = new Writer()
  #count = 0
  #calls: Call[] = []

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
        this.#write(isPeek, rules, key, options ?? NONE)
      } catch (error) {
        return reject(thrown(error))
      }
      this.#calls.push({ resolve, reject })
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
    this.#write(false, rules, key, options ?? NONE)
    const call: Call = { resolve: (decision: Decision) => (decided = decision), reject: (error) => (failure = error) }
    this.#heads[0] = loop().ticket(call)
    const bytes = this.#written()
    loop().read((chunk, at) => loop().queue.decide(this.#core, this.#heads, bytes, chunk, at))
    if (decided === undefined) throw failure
    return decided
  }

  readonly #flush = (): void => {
    const [count, calls] = [this.#count, this.#calls]
    if (count === 0) return
    this.#count = 0
    this.#calls = []
    const { queue } = loop()
    for (let index = 0; index < count; index++) this.#heads[index * HEAD] = loop().ticket(calls[index]!)
    const bytes = this.#written()
    loop().read((chunk, at) => queue.submit(this.#core, count, this.#heads, bytes, chunk, at))
  }

  /** The bytes of the keys; the next ones are written over them. */
  #written(): Buffer {
    const { bytes } = this.#writer
    this.#writer.used = 0
    return bytes
  }

  #write(isPeek: boolean, rules: string | readonly string[], key: Key, options: CheckOptions): void {
    const writer = this.#writer
    const { cost, limits, requestId, deadline } = options
    const target = this.#target(rules)
    const start = writer.used
    try {
      judged(options)
      const parts = writer.key(key)
      const keyEnd = writer.used
      if (limits !== undefined) writer.part(limits)
      const limitsEnd = writer.used
      if (requestId !== undefined) writer.part(requestId)
      const at = this.#count * HEAD
      const heads = this.#heads
      heads[at + 1] = target
      heads[at + 2] = cost ?? 1
      heads[at + 3] = isPeek ? 1 : 0
      heads[at + 4] = deadline === undefined ? -1 : milliseconds(deadline, 'deadline')
      heads[at + 5] = keyEnd - start
      heads[at + 6] = parts
      heads[at + 7] = limits === undefined ? -1 : limitsEnd - keyEnd
      heads[at + 8] = requestId === undefined ? -1 : writer.used - limitsEnd
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
    return target
  }

  /** Names that callers make up must not fill the memory. */
  #forgetTargets(): void {
    this.#flush()
    this.#targets.clear()
    this.#core.forgetTargets()
  }
}

/** Refuses what is of another type: core judges the rest. */
function judged({ cost, limits, requestId }: CheckOptions): void {
  if (cost !== undefined && typeof cost !== 'number') {
    throw invalid(`the cost ${String(cost)} is no number; write a whole number from 1`)
  }
  if (limits !== undefined && typeof limits !== 'string') throw invalid("limits are text, such as '1000/m'")
  if (requestId !== undefined && typeof requestId !== 'string' && !(requestId instanceof Uint8Array)) {
    throw invalid('a request id is text or bytes; pass String(...) of it')
  }
}
