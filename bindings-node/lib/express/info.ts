import type { NextFunction, Request } from 'express'

import type { Admission, Decision } from '../index.js'

/** How a request's limit stands, as `req.rateLimit` has it. */
export interface RateLimitInfo {
  /** Units per window. */
  limit: number
  /** Units that are used, with this request's own; more than `limit` where it is refused. */
  used: number
  /** The largest cost that would be admitted now. */
  remaining: number
  /** When the limit is whole again; if it refuses, when this request passes. Undefined if that is never. */
  resetTime: Date | undefined
  /** Who is limited. Undefined where a document says it. */
  key: string | undefined
}

/** Where the last admission of a request stands, for limiters further inside. The same for all copies of this package. */
export const ADMISSION = Symbol.for('tidegate.admission')

/** A request, as limiters see it. */
export type Limited = Request & { [ADMISSION]?: Admission; [property: string]: unknown }

/** What the last limiter that a request passed has decided; undefined where there was none, or it was skipped. */
export function admissionOf(request: object): Admission | undefined {
  return (request as { [ADMISSION]?: Admission })[ADMISSION]
}

/** The figures of a decision; undefined where the store failed, and nobody knows them. */
export function infoOf(decision: Decision, key: string | undefined, cost = 1): RateLimitInfo | undefined {
  const { allowed, limit, remaining, origin } = decision
  if (origin === 'open' || origin === 'closed') return undefined
  const wait = allowed ? decision.resetAfterMs : decision.retryAfterMs
  return {
    limit,
    used: Math.max(limit - remaining, 0) + (allowed ? 0 : cost),
    remaining,
    resetTime: wait === null ? undefined : new Date(Date.now() + wait),
    key,
  }
}

/** The decision that speaks where only one can: one that refuses with the longest wait, or the one with the least left. */
export function tightest(decisions: readonly Decision[]): Decision | undefined {
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

/**
 * Hands an error to the application. `next` lets a request pass if it is called with nothing, `'route'` or `'router'`,
 * so what was thrown is made an error.
 */
export function fail(next: NextFunction, error: unknown): void {
  next(
    error instanceof Error ? error : new Error(`a rate limit's function has thrown ${String(error)}`, { cause: error }),
  )
}
