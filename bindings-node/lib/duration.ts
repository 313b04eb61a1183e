import { invalid } from './errors.js'
import { duration } from './native.js'

/** A time: milliseconds from 1 on, or text with a unit such as `'10s'`, `'100ms'` or `'5 minutes'`. */
export type Duration = number | string

/**
 * @internal The milliseconds of a duration.
 * @throws TidegateError `invalid_request` for what is none.
 */
export function milliseconds(time: Duration, what: string): number {
  if (typeof time === 'string') return parsed(time, what)
  if (typeof time !== 'number' || !(time >= 1) || time === Infinity) {
    throw invalid(`the ${what} ${String(time)} is no time; write milliseconds from 1 on, or text such as '10s'`)
  }
  return time
}

function parsed(text: string, what: string): number {
  try {
    return duration(text)
  } catch (error) {
    throw invalid(`the ${what} is no time: ${error instanceof Error ? error.message : String(error)}`)
  }
}
