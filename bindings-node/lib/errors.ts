import { names } from './native.js'

/** What kind of thing went wrong; the same in every language. The README says when each comes. */
export type ErrorCode =
  | 'invalid_rule'
  | 'invalid_document'
  | 'invalid_request'
  | 'unknown_rule'
  | 'store_unavailable'
  | 'timeout'
  | 'store_refused'
  | 'unsupported_server'
  | 'corrupt_state'
  | 'invalid_receipt'

/** An error: its stable code, and a message that says what to do. A refusal is never one. */
export class TidegateError extends Error {
  /** What kind of error it is. */
  readonly code: ErrorCode

  constructor(code: ErrorCode, message: string, options?: { cause?: unknown }) {
    super(message)
    if (options && 'cause' in options)
      Object.defineProperty(this, 'cause', { value: options.cause, configurable: true })
    this.name = 'TidegateError'
    this.code = code
  }
}

/** @internal */
export function invalid(message: string): TidegateError {
  return new TidegateError('invalid_request', message)
}

/** @internal Every code, in the order in which records count them. */
export const errorCodes = lazily(() => names()['errors'] as ErrorCode[])

/** @internal What the addon threw, as what users catch. */
export function thrown(error: unknown): unknown {
  if (!(error instanceof Error) || error instanceof TidegateError) return error
  const code = (error as { code?: unknown }).code
  const known = errorCodes().find((kind) => kind === code)
  if (known) return new TidegateError(known, error.message)
  return new TidegateError('invalid_request', `an argument is of another type than it must be: ${error.message}`)
}

/** @internal Calls into the addon, whose errors become what users catch. */
export function calling<T>(call: () => T): T {
  try {
    return call()
  } catch (error) {
    throw thrown(error)
  }
}

/** @internal */
export function lazily<T>(make: () => T): () => T {
  let made: T | undefined
  return () => (made ??= make())
}
