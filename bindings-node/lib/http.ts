/**
 * What the files of several frameworks share: it knows Node's requests and responses, and no framework.
 *
 * Everything here is synchronous unless somebody who is asked answers with a promise.
 */

import type { ServerResponse } from 'node:http'

import type { Admission, Policy, Request, Told } from './index.js'

/** Who a user is, or one part of a key: text, bytes or a number. Nothing, an empty text and `false` are nobody. */
export type Identity = string | Uint8Array | number | bigint | boolean | null | undefined

/** Something that the application is asked of a request; `A` may come by a promise. */
export type Ask<R, A> = (request: R) => A | PromiseLike<A>

/** What the application is asked, and only of requests whose route needs it. */
export interface Asks<R> {
  /** Who the user is, for keys of `user`. */
  user?: Ask<R, Identity> | undefined
  /** What the document calls `app:NAME`, in keys and costs, by NAME. */
  values?: Readonly<Record<string, Ask<R, Identity>>> | undefined
  /** The questions of `exempt.app`: who answers `true` is not limited. */
  answers?: Readonly<Record<string, Ask<R, boolean>>> | undefined
}

/** What is told of a request while it is gathered. */
export type Telling = { -readonly [field in keyof Told]: Told[field] }

/**
 * The lines of the headers that are needed, flat as Node's `rawHeaders` are. A header of several lines stays several:
 * joined, nobody could tell who wrote which.
 *
 * @param names in lower case
 */
export function headerLines(rawHeaders: readonly string[], names: readonly string[]): string[] {
  const lines: string[] = []
  for (let at = 0; at + 1 < rawHeaders.length; at += 2) {
    const name = rawHeaders[at]!
    for (const wanted of names) {
      if (name.length === wanted.length && name.toLowerCase() === wanted) {
        lines.push(wanted, rawHeaders[at + 1]!)
        break
      }
    }
  }
  return lines
}

/** Where a request's headers are; Node's `IncomingMessage` is one. */
export interface Headed {
  readonly rawHeaders?: readonly string[]
  readonly headers: { readonly [name: string]: string | readonly string[] | undefined }
}

/**
 * The same of a request: by `headers` where it has no `rawHeaders`, as those that are made of the events of functions
 * in a cloud have none.
 *
 * @param names in lower case
 */
export function linesOf(request: Headed, names: readonly string[]): string[] {
  const { rawHeaders } = request
  if (rawHeaders !== undefined && rawHeaders.length > 0) return headerLines(rawHeaders, names)
  return names.flatMap((name) => {
    const value = request.headers[name] ?? []
    return (typeof value === 'string' ? [value] : value).flatMap((line) => [name, line])
  })
}

const ACCEPT = ['accept']

/**
 * An admission as the request's `Accept` likes it best. Only a refusal has a form, so for others that header need be neither
 * looked for nor told.
 */
export function accepted(admission: Admission, request: Headed): Admission {
  if (admission.allowed) return admission
  const lines = linesOf(request, ACCEPT).filter((_, at) => at % 2 === 1)
  return lines.length === 0 ? admission : admission.accepting(lines.join(', '))
}

const ABSOLUTE = /^[a-z][a-z0-9+.-]*:\/\/[^/?#]*/i
const AFTER_PATH = /[?#]/

/**
 * The path of a request target, as routers see it: without query and fragment, and without the scheme and the host of an
 * absolute target.
 *
 * @param target `request.url` as it came over the wire
 */
export function wirePath(target: string): string {
  let path = target
  if (path.charCodeAt(0) !== 47 /* / */) path = path.replace(ABSOLUTE, '')
  const end = path.search(AFTER_PATH)
  if (end >= 0) path = path.slice(0, end)
  return path === '' ? '/' : path
}

/** The peer of a connection, as a policy takes it: its address, or `unix`; null where the connection is gone. */
export function peerOf(socket: { remoteAddress?: string | undefined; destroyed?: boolean } | null): string | null {
  const address = socket?.remoteAddress
  if (address !== undefined) return address
  return socket === null || socket.destroyed === true ? null : 'unix'
}

/**
 * Asks the application for what the request's route needs beside headers, and adds it to `told`.
 *
 * @returns `told` itself; a promise of it where somebody who was asked has answered with one, or has failed. It rejects
 *   with what they throw, and with a `TypeError` for a user or a value that tells nobody from others
 */
export function ask<R>(asks: Asks<R>, request: Request, of: R, told: Telling): Telling | Promise<Telling> {
  const waits: PromiseLike<unknown>[] = []
  if (request.needsUser && asks.user !== undefined) {
    const { user } = asks
    listen(
      () => user(of),
      waits,
      (user) => {
        told.user = userOf(user)
      },
    )
  }
  if (request.needsValues.length > 0) askValues(asks.values ?? {}, request.needsValues, of, told, waits)
  if (request.needsAnswers.length > 0) askAnswers(asks.answers ?? {}, request.needsAnswers, of, told, waits)
  return waits.length === 0 ? told : Promise.all(waits).then(() => told)
}

function askValues<R>(
  asks: NonNullable<Asks<R>['values']>,
  names: readonly string[],
  of: R,
  told: Telling,
  waits: PromiseLike<unknown>[],
): void {
  const values: Record<string, string | Uint8Array | number> = {}
  told.values = values
  for (const name of names) {
    const value = own(asks, name)
    if (value === undefined) continue
    listen(
      () => value(of),
      waits,
      (answer) => {
        const part = identity(answer)
        if (part !== null) values[name] = part
      },
    )
  }
}

function askAnswers<R>(
  asks: NonNullable<Asks<R>['answers']>,
  questions: readonly string[],
  of: R,
  told: Telling,
  waits: PromiseLike<unknown>[],
): void {
  const answers: string[] = []
  told.answers = answers
  for (const question of questions) {
    const answer = own(asks, question)
    if (answer === undefined) continue
    // Nothing but true is a yes: an object that stands for a failure must exempt nobody.
    listen(
      () => answer(of),
      waits,
      (yes) => {
        if (yes === true) answers.push(question)
      },
    )
  }
}

function own<T>(table: Readonly<Record<string, T>>, name: string): T | undefined {
  return Object.hasOwn(table, name) ? table[name] : undefined
}

/**
 * Takes an answer: at once, or when it comes. One that fails at once is among those that are waited for as well: if it
 * were thrown, nobody would hear of another that fails later, and Node ends a process for that.
 *
 * @param waits what `Promise.all` is to wait for
 */
export function listen<A>(
  ask: () => A | PromiseLike<A>,
  waits: PromiseLike<unknown>[],
  take: (answer: A) => void,
): void {
  try {
    const answer = ask()
    if (isPromise(answer)) waits.push(answer.then(take))
    else take(answer)
  } catch (error) {
    waits.push(Promise.reject(error))
  }
}

/** Whether an answer has to be waited for. */
export function isPromise<T>(answer: T | PromiseLike<T>): answer is PromiseLike<T> {
  return (
    typeof answer === 'object' &&
    answer !== null &&
    'then' in answer &&
    typeof (answer as { then: unknown }).then === 'function'
  )
}

/**
 * A part of a key, or a cost, as a policy takes it: numbers stay; null is nobody.
 *
 * @throws TypeError for an object whose text is that of every other
 */
export function identity(value: unknown): string | Uint8Array | number | null {
  switch (typeof value) {
    case 'string':
    case 'number':
      return value
    case 'bigint':
      return value.toString()
    case 'undefined':
      return null
    case 'boolean':
      if (!value) return null
      break
    case 'object': {
      if (value === null || value instanceof Uint8Array) return value
      const text = String(value)
      if (!text.includes('[object ')) return text
    }
  }
  const kind = Array.isArray(value) ? 'a list' : typeof value === 'object' ? 'an object' : `a ${typeof value}`
  throw new TypeError(`${kind} tells nobody from others; write text, bytes or a number of it`)
}

/** A user as a policy takes it: of a number, text. */
export function userOf(value: unknown): string | Uint8Array | null {
  const user = identity(value)
  return typeof user === 'number' ? String(user) : user
}

/**
 * What routes of the policy need and the application is not asked for, in words for a log: whoever forgets `user` learns
 * it at the start. An answer that nobody gives is a no, which may be meant, so it is not told.
 */
export function unasked<R>(policy: Policy, asks: Asks<R>, routes = policy.routes): string[] {
  const missing: string[] = []
  for (const route of routes) {
    const request = policy.named('GET', route)
    if (request.needsUser && asks.user === undefined)
      missing.push(`route ${route} needs the user; write user: (req) => ...`)
    for (const name of request.needsValues) {
      if (own(asks.values ?? {}, name) !== undefined) continue
      missing.push(`route ${route} needs app:${name}; write values: { ${JSON.stringify(name)}: (req) => ... }`)
    }
  }
  return missing
}

/** Where a response's fields are set before it begins: Node's `ServerResponse`, or what a framework has instead. */
export interface Fields {
  getHeader(name: string): number | string | readonly string[] | undefined
  setHeader(name: string, value: string): unknown
  removeHeader(name: string): unknown
}

/** What belongs to the body of a refusal, and not to the limits. */
const OF_BODY: ReadonlySet<string> = new Set(['content-type', 'vary'])

/**
 * Adds an admission's fields to a response that has not begun. What the application has set itself stays; what an
 * admission before set is replaced, since this one's fields tell of its limits too.
 *
 * @param withBody false leaves out those that describe the body of a refusal
 */
export function setFields(
  response: Fields,
  admission: Admission,
  before: Admission | null = null,
  withBody = true,
): void {
  const fields = admission.rawHeaders
  for (let at = 0; at < fields.length; at += 2) {
    const name = fields[at]!
    const value = fields[at + 1]!
    if (!withBody && OF_BODY.has(name.toLowerCase())) continue
    const there = response.getHeader(name)
    if (there === undefined || (before !== null && wrote(before, name, there))) response.setHeader(name, value)
  }
}

/** An admission's fields without those that describe the body of a refusal. */
export function limitFields(admission: Admission): [name: string, value: string][] {
  return admission.headers.filter(([name]) => !OF_BODY.has(name.toLowerCase()))
}

function wrote(admission: Admission, name: string, value: unknown): boolean {
  const fields = admission.rawHeaders
  for (let at = 0; at < fields.length; at += 2) if (fields[at] === name) return fields[at + 1] === value
  return false
}

/** What would be said of another body than that of a refusal. */
const OF_ANOTHER_BODY = ['content-length', 'content-encoding', 'content-disposition', 'etag', 'last-modified']

/**
 * Answers a request that may not pass: status, fields and body as the core has them. Fields of the application stay, but
 * for those of a body that is not sent now. Does nothing where a response has begun.
 */
export function refuse(response: ServerResponse, admission: Admission, before: Admission | null = null): void {
  if (response.headersSent || response.writableEnded) return
  setRefusal(response, admission, before)
  const body = admission.body ?? ''
  response.setHeader('Content-Length', Buffer.byteLength(body))
  response.statusCode = admission.status ?? 429
  response.end(body)
}

/** The fields of a refusal with the core's body. Those of a body that is not sent now are removed. */
export function setRefusal(response: Fields, admission: Admission, before: Admission | null = null): void {
  for (const name of OF_ANOTHER_BODY) response.removeHeader(name)
  const vary = response.getHeader('vary')
  response.removeHeader('vary')
  response.removeHeader('content-type')
  response.removeHeader('cache-control')
  setFields(response, admission, before)
  if (vary !== undefined) response.setHeader('Vary', joined(vary, response.getHeader('vary')))
}

function joined(...lists: (number | string | readonly string[] | undefined)[]): string {
  return lists.flatMap((list) => (list === undefined ? [] : list)).join(', ')
}
