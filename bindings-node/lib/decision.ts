import { inspect } from 'node:util'

import { errorCodes, lazily, TidegateError } from './errors.js'
import { names } from './native.js'
import { DECISION, LIMIT, LIMIT_NUMBERS, type Chunk } from './record.js'

/** How a limit counts. */
export type Algorithm =
  'sliding_window_log' | 'sliding_window' | 'token_bucket' | 'sliding_window_counter' | 'fixed_window'

/**
 * Who decided: the store; a refusal that this process remembers (`deny_cache`); or, where the store failed, this process
 * (`local`) or the rule's failure policy (`open` lets pass, `closed` refuses).
 */
export type Origin = 'store' | 'deny_cache' | 'local' | 'open' | 'closed'

/** How one limit of a decision stands. */
export interface LimitDecision {
  /** The rule that the limit belongs to. */
  readonly rule: string
  /** The limit's name, if it was given one. */
  readonly name: string | null
  /** How it counts. */
  readonly algorithm: Algorithm
  /** Units per window. */
  readonly limit: number
  readonly windowMs: number
  /** The units that a token bucket admits at once; the limit for the other algorithms. */
  readonly burst: number
  /** The grid to which a sliding window rounds its times up; null if they are exact. */
  readonly precisionMs: number | null
  /** Whether it blocks; a shadow limit only reports. */
  readonly enforced: boolean
  /** Whether this limit alone would let the request pass. */
  readonly allowed: boolean
  /** The largest cost admissible now. */
  readonly remaining: number
  /** Milliseconds until this cost passes, rounded up; null when it does, and when it never can. */
  readonly retryAfterMs: number | null
  /** Milliseconds until the quota is whole, rounded up; null if it never is. */
  readonly resetAfterMs: number | null
}

/** @internal Every algorithm, in the order in which records count them. */
export const algorithms = lazily(() => names()['algorithms'] as Algorithm[])
const origins = lazily(() => names()['origins'] as Origin[])

/**
 * Whether a request may pass, and how its limits stand. The figures of the whole are those of the enforced limits together.
 * When the failure policy decided nothing is known: `remaining` is 0, and both times are null.
 */
export class Decision {
  readonly #chunk: Chunk
  readonly #at: number

  /** @internal */
  constructor(chunk: Chunk, at: number) {
    this.#chunk = chunk
    this.#at = at
  }

  /** Whether the request may pass. */
  get allowed(): boolean {
    return this.#number(DECISION.allowed) === 1
  }

  /** The units per window of the limit that binds. */
  get limit(): number {
    return this.#number(DECISION.limit)
  }

  /** The largest cost admissible now, after this charge. */
  get remaining(): number {
    return this.#number(DECISION.remaining)
  }

  /** Milliseconds until this cost passes if nobody else comes, rounded up; null when allowed, and when it never can. */
  get retryAfterMs(): number | null {
    return known(this.#number(DECISION.retryAfter))
  }

  /** Milliseconds until every quota is whole, rounded up; null if that never is, or is not known. */
  get resetAfterMs(): number | null {
    return known(this.#number(DECISION.resetAfter))
  }

  /** Whether the request's id had been charged before: allowed, and nothing charged again. */
  get repeat(): boolean {
    return this.#number(DECISION.repeat) === 1
  }

  /** Who decided. */
  get origin(): Origin {
    return origins()[this.#number(DECISION.origin)]!
  }

  /** Every limit with its own figures, in the order written. */
  get limits(): LimitDecision[] {
    const count = this.#number(DECISION.limits)
    let text = this.#text() + this.#number(DECISION.receipt) + this.#number(DECISION.message)
    return Array.from({ length: count }, (_, index) => {
      const limit = this.#limit(index, text)
      const at = this.#limitAt(index)
      text += this.#number(at + LIMIT.rule) + Math.max(this.#number(at + LIMIT.name), 0)
      return limit
    })
  }

  /** The limit that binds: the refusing one with the longest wait, or when allowed the one with the least remaining. */
  get binding(): LimitDecision {
    return this.limits[this.#number(DECISION.binding)]!
  }

  /** Why the failure policy decided; null if it did not. */
  get failure(): TidegateError | null {
    const code = this.#number(DECISION.failure)
    if (code < 0) return null
    const start = this.#text() + this.#number(DECISION.receipt)
    const message = this.#chunk.text(start, this.#number(DECISION.message))
    return new TidegateError(errorCodes()[code]!, message)
  }

  /** What was charged, as text that `refund` takes and that may be kept; empty if nothing was. */
  get receipt(): string {
    const start = this.#text()
    return this.#chunk.bytes.toString('base64url', start, start + this.#number(DECISION.receipt))
  }

  /** All of it as a plain object. */
  toJSON(): object {
    const { allowed, limit, remaining, retryAfterMs, resetAfterMs, repeat, origin, limits, failure, receipt } = this
    const why = failure && { code: failure.code, message: failure.message }
    return { allowed, limit, remaining, retryAfterMs, resetAfterMs, repeat, origin, limits, failure: why, receipt }
  }

  /** @internal */
  [inspect.custom](): string {
    const { allowed, origin, binding, remaining, limit, retryAfterMs, failure } = this
    const wait = retryAfterMs === null ? '' : `, retry after ${retryAfterMs} ms`
    const why = failure ? `, ${failure.code}: ${failure.message}` : ''
    const verdict = allowed ? 'allowed' : 'refused'
    return `<Decision ${verdict} by ${origin}: ${binding.rule}, ${remaining} remaining, limit ${limit}${wait}${why}>`
  }

  #number(place: number): number {
    return this.#chunk.numbers[this.#at + place]!
  }

  #limitAt(index: number): number {
    return DECISION.numbers + index * LIMIT_NUMBERS
  }

  /** Where the bytes begin: behind all numbers. */
  #text(): number {
    return (this.#at + this.#limitAt(this.#number(DECISION.limits))) * 8
  }

  #limit(index: number, text: number): LimitDecision {
    const at = this.#limitAt(index)
    const number = (place: number) => this.#number(at + place)
    const [rule, name] = [number(LIMIT.rule), number(LIMIT.name)]
    return {
      rule: this.#chunk.text(text, rule),
      name: name < 0 ? null : this.#chunk.text(text + rule, name),
      algorithm: algorithms()[number(LIMIT.algorithm)]!,
      limit: number(LIMIT.limit),
      windowMs: number(LIMIT.window),
      burst: number(LIMIT.burst),
      precisionMs: known(number(LIMIT.precision)),
      enforced: number(LIMIT.enforced) === 1,
      allowed: number(LIMIT.allowed) === 1,
      remaining: number(LIMIT.remaining),
      retryAfterMs: known(number(LIMIT.retryAfter)),
      resetAfterMs: known(number(LIMIT.resetAfter)),
    }
  }
}

function known(number: number): number | null {
  return number < 0 ? null : number
}
