import type { NextFunction, Request } from 'express'

export * from '../info.js'

/** A request, as limiters see it. */
export type Limited = Request & { [property: string]: unknown }

/**
 * Hands an error to the application. `next` lets a request pass if it is called with nothing, `'route'` or `'router'`,
 * so what was thrown and is no object is made an error.
 */
export function fail(next: NextFunction, error: unknown): void {
  if (typeof error === 'object' && error !== null) next(error)
  else next(new Error(`a rate limit's function has thrown ${String(error)}`, { cause: error }))
}
