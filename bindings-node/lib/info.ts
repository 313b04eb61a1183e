import { inspect } from 'node:util'

import type { Admission, Decision } from './index.js'
import { ipKeyGenerator } from './express/address.js'

/** Figures as they are told. */
interface Figures {
  limit: number
  used: number
  remaining: number
  resetTime: Date | undefined
  key: string | undefined
}

/**
 * How a request's limit stands, as `req.rateLimit` has it. It is worked out where somebody looks; `toJSON()` is a copy.
 * While the store fails and requests pass, it tells of nothing used.
 */
export class RateLimitInfo {
  readonly #admission: Admission
  readonly #rule: string | undefined
  readonly #key: string | undefined
  readonly #subnet: number | false | undefined
  readonly #cost: number
  readonly #at = Date.now()
  #figures: Figures | undefined

  /**
   * @internal
   * @param rule the one that is told of; the tightest unless said
   * @param subnet how much of a key is told that is an address
   */
  constructor(
    admission: Admission,
    rule?: string | undefined,
    key?: string | undefined,
    subnet?: number | false | undefined,
    cost = 1,
  ) {
    this.#admission = admission
    this.#rule = rule
    this.#key = key
    this.#subnet = subnet
    this.#cost = cost
  }

  /** Units per window. */
  get limit(): number {
    return this.#told().limit
  }

  /** Units that are used, with this request's own; more than `limit` where it is refused. */
  get used(): number {
    return this.#told().used
  }

  /** The largest cost that would be admitted now. */
  get remaining(): number {
    return this.#told().remaining
  }

  /** When the limit is whole again; if it refuses, when this request passes. Undefined if that is never, or not known. */
  get resetTime(): Date | undefined {
    return this.#told().resetTime
  }

  /** Who is limited. Undefined where a document says it. */
  get key(): string | undefined {
    return this.#told().key
  }

  /** All of it as a plain object. */
  toJSON(): Figures {
    return { ...this.#told() }
  }

  /** @internal */
  [inspect.custom](): Figures {
    return this.toJSON()
  }

  #told(): Figures {
    return (this.#figures ??= this.#read())
  }

  #read(): Figures {
    const key =
      this.#subnet === undefined || this.#key === undefined ? this.#key : ipKeyGenerator(this.#key, this.#subnet)
    const { decisions } = this.#admission
    const decision = this.#rule === undefined ? tightest(decisions) : ofRule(decisions, this.#rule)
    const { allowed = true, limit = 0, remaining = 0, origin = 'open' } = decision ?? {}
    if (decision === undefined || origin === 'open' || origin === 'closed') {
      return { limit, used: 0, remaining: allowed ? limit : 0, resetTime: undefined, key }
    }
    const wait = allowed ? decision.resetAfterMs : decision.retryAfterMs
    const used = Math.max(limit - remaining, 0) + (allowed ? 0 : this.#cost)
    return { limit, used, remaining, resetTime: wait === null ? undefined : new Date(this.#at + wait), key }
  }
}

/** The last admission of each request. To add a property to a request takes several times as long. */
export const admissions = new WeakMap<object, Admission>()

/** What the last limiter that a request passed has decided; undefined where there was none, or it was skipped. */
export function admissionOf(request: object): Admission | undefined {
  return admissions.get(request)
}

/** The decision of a rule: those of limiters outside of it come first. */
function ofRule(decisions: readonly Decision[], rule: string): Decision | undefined {
  const last = decisions[decisions.length - 1]
  const isOf = (decision: Decision) => decision.limits[0]?.rule === rule
  return decisions.length < 2 || isOf(last!) ? last : decisions.find(isOf)
}

/** The decision that speaks where only one can: one that refuses with the longest wait, or the one with the least left. */
function tightest(decisions: readonly Decision[]): Decision | undefined {
  let found = decisions[0]
  for (let at = 1; at < decisions.length; at++) {
    if (isTighter(decisions[at]!, found!)) found = decisions[at]
  }
  return found
}

function isTighter(one: Decision, other: Decision): boolean {
  if (one.allowed !== other.allowed) return !one.allowed
  if (one.allowed) return one.remaining < other.remaining
  return (one.retryAfterMs ?? Infinity) > (other.retryAfterMs ?? Infinity)
}
