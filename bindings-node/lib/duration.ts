import { calling, invalid } from './errors.js'
import { duration } from './native.js'

/** A time: milliseconds from 1 on, or text with a unit such as `'10s'`, `'100ms'` or `'5 minutes'`. */
export type Duration = number | string

/**
 * @internal The milliseconds of a duration.
 * @throws TidegateError `invalid_request` for what is none, `invalid_rule` for text that is none.
 */
export function milliseconds(time: Duration, what: string): number {
  if (typeof time === 'string') return calling(() => duration(time))
  if (typeof time !== 'number' || !(time >= 1) || time === Infinity) {
    throw invalid(`the ${what} ${String(time)} is no time; write milliseconds from 1 on, or text such as '10s'`)
  }
  return time
}
