import { milliseconds, type Duration } from './duration.js'
import { calling, invalid } from './errors.js'
import { Clock } from './native.js'

/** The first of January 2030, UTC: a moment of no importance. */
const START = 1_893_456_000_000

/**
 * A clock that stands still until it is moved, for tests of what uses a limiter: `new Limiter({ rules, clock })` and
 * `new Policy(document, { clock })` are in memory, whatever `TIDEGATE_URL` says.
 */
export class FakeClock extends Clock {
  /** @param start milliseconds since 1970 */
  constructor(start: number = START) {
    super(microseconds(start))
  }

  /** The time in milliseconds since 1970. */
  get nowMs(): number {
    return this.micros / 1_000
  }

  /** Lets time pass: to wait `decision.retryAfterMs` is enough. */
  advance(time: Duration): void {
    const micros = Math.round(milliseconds(time, 'time') * 1_000)
    calling(() => (this.micros += micros))
  }
}

function microseconds(start: number): number {
  const micros = typeof start === 'number' ? Math.round(start * 1_000) : NaN
  if (micros >= 0 && micros <= Number.MAX_SAFE_INTEGER) return micros
  throw invalid(`the start ${String(start)} is no time; write milliseconds since 1970, such as Date.now()`)
}
