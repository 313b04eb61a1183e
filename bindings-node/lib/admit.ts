import { setImmediate } from 'node:timers'

import type { Admission, Request } from './admission.js'
import { Crossing } from './crossing.js'
import { invalid, thrown } from './errors.js'
import type { Writer } from './key.js'
import { loop } from './loop.js'
import type { PolicyCore } from './native.js'

/** What is told of a request: what it came with, and what the application knows of it. */
export interface Told {
  /** Who speaks to the server, as `req.socket.remoteAddress`; `'unix'` on a Unix socket. */
  readonly peer?: string | null | undefined
  /** Lines of headers, flat as `req.rawHeaders`: a name, its value, a name, its value. */
  readonly headers?: readonly string[] | undefined
  /** Who the user is; nobody if empty. */
  readonly user?: string | Uint8Array | null | undefined
  /** What the application supplies under its names: keys, and costs. */
  readonly values?: { readonly [name: string]: string | Uint8Array | number } | undefined
  /** The questions of `exempt.app` that the application answers with yes. */
  readonly answers?: readonly string[] | undefined
  /** What was decided of this request before: no rule is charged twice on one key. */
  readonly after?: Admission | null | undefined
}

/** The numbers of a request; `src/admission.rs` reads them. */
const HEAD = 8
/** So many requests leave at once at most. */
const MOST = 128
const NOTHING: Told = {}
const NONE: readonly (string | Uint8Array)[] = []
/** Node's own: a test runner puts another into the module too. */
const later = setImmediate

/**
 * @internal The requests that came in one turn of the loop, which cross to the addon in one call. Each comes in a callback of
 * its own, so they leave when the loop has called all of them: every one that left alone would be written and read alone.
 */
export class Requests {
  readonly #core: PolicyCore
  readonly #loop = loop()
  readonly #crossing: Crossing

  constructor(core: PolicyCore) {
    this.#core = core
    this.#crossing = new Crossing(HEAD, MOST, (memory) => this.#loop.queue.admitter(core, memory))
  }

  add(request: Request, told: Told = NOTHING): Promise<Admission> {
    return new Promise((resolve, reject) => {
      const crossing = this.#crossing
      try {
        this.#write(request, told)
      } catch (error) {
        return reject(thrown(error))
      }
      crossing.writer.numbers[crossing.place] = this.#loop.ticket({ resolve, reject })
      if (++crossing.count === 1) later(this.#flush)
      else if (crossing.isFull) crossing.leave()
    })
  }

  readonly #flush = (): void => {
    if (this.#crossing.count > 0) this.#crossing.leave()
  }

  #write(request: Request, { peer, headers, user, values, answers, after }: Told): void {
    // Before anything is written: what is looked up may be the caller's code.
    const supplied = values === undefined ? NONE : pairs(values)
    if (headers !== undefined) judgeHeaders(headers)
    if (answers !== undefined && !Array.isArray(answers)) throw invalid('answers are a list of questions')
    if (after && typeof after.before !== 'function') throw invalid('after is the admission before this one')
    const { writer, place } = this.#crossing
    const hasPeer = typeof peer === 'string'
    const hasUser = user !== null && user !== undefined
    const start = writer.used
    try {
      if (hasPeer) writer.told(peer)
      if (hasUser) writer.told(user)
      const lines = headers === undefined ? 0 : writeLines(writer, headers)
      for (const part of supplied) writer.told(part)
      if (answers !== undefined) for (const question of answers) writer.told(question)
      const { numbers } = writer
      numbers[place + 3] = hasPeer ? 1 : 0
      numbers[place + 4] = hasUser ? 1 : 0
      numbers[place + 5] = lines
      numbers[place + 6] = supplied.length / 2
      numbers[place + 7] = answers === undefined ? 0 : answers.length
      // Last, since these are kept for it.
      numbers[place + 1] = request.number(this.#core)
      numbers[place + 2] = after ? after.before(this.#core) : -1
    } catch (error) {
      writer.used = start
      throw error
    }
  }
}

function judgeHeaders(headers: readonly string[]): void {
  if (!Array.isArray(headers) || headers.length % 2 !== 0) {
    throw invalid('headers are one flat list, as req.rawHeaders: a name, its value, a name, its value')
  }
}

function writeLines(writer: Writer, headers: readonly string[]): number {
  const count = headers.length >> 1
  for (let line = 0; line < count; line++) {
    writer.told(headers[2 * line]!)
    writer.line(headers[2 * line + 1]!)
  }
  return count
}

/** Names and what is supplied under them, in one list. */
function pairs(values: NonNullable<Told['values']>): (string | Uint8Array)[] {
  const all: (string | Uint8Array)[] = []
  for (const name of Object.keys(values)) {
    const value = values[name]
    if (typeof value !== 'string' && typeof value !== 'number' && !(value instanceof Uint8Array)) {
      throw invalid(`the value ${JSON.stringify(name)} is text, bytes or a number; pass String(...) of it`)
    }
    all.push(name, typeof value === 'number' ? String(value) : value)
  }
  return all
}
