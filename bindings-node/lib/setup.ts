/** What is looked at before there is a request. */

import { createHash } from 'node:crypto'

import { invalid } from './errors.js'

/**
 * A way in which a limiter was set up that cannot work, or does not do what it seems to. Thrown where it cannot work,
 * otherwise told once to the `logger`.
 */
export class SetupError extends Error {
  override readonly name = 'SetupError'
  /** Which one, such as `ERR_TIDEGATE_PERMISSIVE_TRUST_PROXY`. Codes stay. */
  readonly code: string
  /** What to write instead. */
  readonly hint: string

  constructor(code: string, what: string, hint: string) {
    super(`${what}; ${hint} (${code})`)
    this.code = code
    this.hint = hint
  }
}

/** The options that were given: one that is undefined was not. */
export function given<T extends object>(options: T): T {
  if (typeof options !== 'object' || options === null) {
    const what = `the options are ${options === null ? 'null' : `a ${typeof options}`}`
    throw new SetupError('ERR_TIDEGATE_TYPE', what, 'write an object of them: { ... }')
  }
  return Object.fromEntries(Object.entries(options).filter(([, value]) => value !== undefined)) as T
}

/** What to write instead of an option that is not known: the nearest that is, or all of them. */
export function nearest(name: string, names: readonly string[]): string {
  const near = names.map((known) => [distance(name.toLowerCase(), known.toLowerCase()), known] as const)
  near.sort((one, other) => one[0] - other[0])
  const [steps, best] = near[0]!
  return steps <= Math.max(2, best.length / 3) ? `write ${best}` : `the options are ${names.join(', ')}`
}

/** In how many single steps one word becomes the other. */
function distance(from: string, to: string): number {
  let row = Array.from({ length: to.length + 1 }, (_, at) => at)
  for (let i = 1; i <= from.length; i++) {
    const next = [i]
    for (let j = 1; j <= to.length; j++) {
      const same = from[i - 1] === to[j - 1] ? 0 : 1
      next.push(Math.min(next[j - 1]! + 1, row[j]! + 1, row[j - 1]! + same))
    }
    row = next
  }
  return row[to.length]!
}

/**
 * Refuses an option that is not known: it would be ignored.
 *
 * @param instead what to write instead of options that others have
 * @throws SetupError
 */
export function refuseUnknown(
  options: object,
  names: readonly string[],
  instead: Readonly<Record<string, string>> = {},
): void {
  for (const name of Object.keys(options)) {
    if (names.includes(name)) continue
    const hint = Object.hasOwn(instead, name) ? instead[name]! : nearest(name, names)
    throw new SetupError('ERR_TIDEGATE_UNKNOWN_OPTION', `${name} is no option here`, hint)
  }
}

/** @throws SetupError unless it is a whole number of milliseconds from 1, or text, which the core reads */
export function checkWindow(name: string, window: unknown): void {
  if (typeof window === 'string' || (Number.isInteger(window) && (window as number) > 0)) return
  throw new SetupError(
    'ERR_TIDEGATE_WINDOW',
    `${name} is ${String(window)}`,
    "write whole milliseconds, or text: '15m'",
  )
}

/** The most that a limit may be. */
export const MOST = 10_000_000

/** @throws SetupError unless it is a whole number from 0 to 10,000,000 */
export function checkLimit(name: string, limit: unknown): void {
  if (Number.isInteger(limit) && (limit as number) >= 0 && (limit as number) <= MOST) return
  throw new SetupError('ERR_TIDEGATE_LIMIT', `${name} is ${String(limit)}`, `write a whole number from 0 to ${MOST}`)
}

/**
 * @param given what a function has given for a request
 * @throws TidegateError unless it is a whole number from 1 to 10,000,000
 */
export function costOf(given: unknown): number {
  if (Number.isInteger(given) && (given as number) >= 1 && (given as number) <= MOST) return given as number
  throw invalid(`cost has given ${String(given)} for a request; return a whole number from 1 to ${MOST}`)
}

/** @throws SetupError unless it is a function or was not given */
export function checkFunction(name: string, value: unknown): void {
  if (value === undefined || typeof value === 'function') return
  throw new SetupError('ERR_TIDEGATE_TYPE', `${name} is a ${typeof value}`, `write ${name}: (...) => ...`)
}

const NAME_BYTES = 64

/** A rule's name made of a text that may be too long for one: then its end is a hash of all of it. */
export function nameOf(text: string): string {
  const bytes = Buffer.from(text)
  if (bytes.length <= NAME_BYTES) return text
  const hash = createHash('sha256').update(bytes).digest('hex').slice(0, 12)
  // What is cut in the middle of a character is left out.
  const head = new TextDecoder().decode(bytes.subarray(0, NAME_BYTES - hash.length - 4)).replace(/\ufffd+$/, '')
  return `${head}~${hash}`
}
