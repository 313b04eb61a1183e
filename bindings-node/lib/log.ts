import { debuglog } from 'node:util'

import { invalid } from './errors.js'

/** A line of what Tidegate says of itself: a store that fails, a rule that has changed, a refusal. Never a key or a login. */
export interface LogLine {
  readonly level: 'error' | 'warn' | 'info' | 'debug' | 'trace'
  /** Who says it, such as `tidegate::http`. */
  readonly target: string
  readonly text: string
}

const debug = debuglog('tidegate')

let logger: (line: LogLine) => void = toNode

/**
 * Where lines go: by default errors and warnings to `process.emitWarning`, and the others to `util.debuglog('tidegate')`, which
 * `NODE_DEBUG=tidegate` shows. `null` is the default again.
 */
export function setLogger(to: ((line: LogLine) => void) | null): void {
  const next = to ?? toNode
  if (typeof next !== 'function') throw invalid('a logger is a function of a line, or null')
  logger = next
}

/** @internal */
export function report(lines: readonly { level: string; target: string; text: string }[]): void {
  for (const line of lines) {
    try {
      logger(line as LogLine)
    } catch (error) {
      process.emitWarning(error instanceof Error ? error : String(error), 'TidegateWarning')
    }
  }
}

function toNode({ level, target, text }: LogLine): void {
  if (level === 'error' || level === 'warn') process.emitWarning(text, { type: 'TidegateWarning', code: target })
  else debug('%s %s: %s', level, target, text)
}
