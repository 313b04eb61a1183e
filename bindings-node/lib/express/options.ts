import { IncomingMessage } from 'node:http'
import { Socket } from 'node:net'
import { inspect } from 'node:util'

import type { NextFunction, Request, Response } from 'express'

import { type Algorithm, type Document, type Duration, Policy } from '../index.js'
import type { Ask, Identity } from '../http.js'
import { given, nearest } from '../setup.js'
import type { FakeClock } from '../testing.js'
import { type Checks, type Logger, SetupError, type Validate } from './checks.js'

/** Something that is worked out for each request; it may come by a promise. */
export type Of<T> = (request: Request, response: Response) => T | PromiseLike<T>

/** Answers a request that its limit refuses. The fields are set, the status is not. */
export type Handler = (request: Request, response: Response, next: NextFunction, options: Settings) => unknown

/** Options that both kinds of limiters have. */
export interface CommonOptions {
  /** Where `req` has the figures. @defaultValue `rateLimit` */
  requestPropertyName?: string | undefined
  /** Which checks of the set-up are made. @defaultValue `true` */
  validate?: Validate | undefined
  /** Who is told of what the checks find. @defaultValue `console` */
  logger?: Logger | undefined
}

/** A limiter with one rule of its own. */
export interface RateLimitOptions extends CommonOptions {
  /** The window: milliseconds, or text such as `'15m'`; 1 ms to 366 days. @defaultValue 60,000 */
  windowMs?: Duration | undefined
  /** So many units per window, 0 (nothing passes) to 10,000,000. @defaultValue 5 */
  limit?: number | Of<number> | undefined
  /** The same as `limit`. */
  max?: number | Of<number> | undefined
  /** How the limit counts. @defaultValue `sliding_window` */
  algorithm?: Algorithm | 'gcra' | undefined
  /** Units that a request takes, from 1. @defaultValue 1 */
  cost?: number | Of<number> | undefined
  /** Who is limited. @defaultValue the client's address, `req.ip` */
  keyGenerator?: Of<Identity> | undefined
  /** How many bits of an IPv6 address are one client, 32 to 128; `false` for all. @defaultValue 56 */
  ipv6Subnet?: number | false | Of<number | false> | undefined
  /** Requests that are not limited. */
  skip?: Of<boolean> | undefined
  /** Answers a request that is refused. */
  handler?: Handler | undefined
  /** The body of a refusal: text, something to send as JSON, or a function of either. */
  message?: string | number | boolean | object | Of<unknown> | undefined
  /** The status of a refusal. @defaultValue 429 */
  statusCode?: number | undefined
  /** Seconds for `Retry-After`, whatever the limit says. */
  retryAfter?: number | Of<number> | undefined
  /** `RateLimit` fields: `draft-6` (also `true`), `draft-7`, or `draft-8`, which is `draft-10`. @defaultValue `false` */
  standardHeaders?: boolean | 'draft-6' | 'draft-7' | 'draft-8' | 'draft-10' | undefined
  /** `X-RateLimit` fields. @defaultValue `true` */
  legacyHeaders?: boolean | undefined
  /** The same as `legacyHeaders`. */
  headers?: boolean | undefined
  /** The rule's name, 1 to 64 bytes. @defaultValue such as `5-in-15min` */
  name?: string | undefined
  /** The same as `name`. */
  identifier?: string | undefined
  /** Gives back what requests took that were answered with 400 or above. @defaultValue `false` */
  skipFailedRequests?: boolean | undefined
  /** Gives back what requests took that were answered below 400. @defaultValue `false` */
  skipSuccessfulRequests?: boolean | undefined
  /** What these two go by. @defaultValue a status below 400 */
  requestWasSuccessful?: Of<boolean> | undefined
  /** What to do while the store fails. @defaultValue `allow` */
  onError?: 'allow' | 'deny' | 'local' | undefined
  /** `true` is `onError: 'allow'`, `false` is `onError: 'deny'`. */
  passOnStoreError?: boolean | undefined
  /** The store, such as `redis://127.0.0.1:6379`. @defaultValue memory, or `TIDEGATE_URL` of the environment */
  url?: string | undefined
  /** What every stored key begins with. @defaultValue `tidegate` */
  prefix?: string | undefined
  /** How long a decision may take. @defaultValue 100 ms */
  deadline?: Duration | undefined
  /** A policy on whose store the rule is; `url`, `prefix` and `deadline` are those of its document. */
  policy?: Policy | undefined
  /** In memory, on this clock: for tests. */
  clock?: FakeClock | undefined
}

/** A limiter by the routes of a document. */
export interface RoutesOptions extends CommonOptions {
  /** A policy, a document, or the path of one. */
  policy: Policy | Document | string
  /** A route of it by its name, whatever the request's path is. */
  route?: string | undefined
  /** Who the user is; asked only where a route needs it. */
  user?: Ask<Request, Identity> | undefined
  /** What the document calls `app:NAME`, by NAME. */
  values?: Readonly<Record<string, Ask<Request, Identity>>> | undefined
  /** The questions of `exempt.app`. */
  answers?: Readonly<Record<string, Ask<Request, boolean>>> | undefined
}

/** The options of a rule with their defaults, as a `handler` gets them. */
export interface Settings extends Omit<RateLimitOptions, 'max' | 'headers' | 'identifier' | 'passOnStoreError'> {
  readonly windowMs: Duration
  readonly limit: number | Of<number>
  readonly statusCode: number
  readonly message: NonNullable<RateLimitOptions['message']>
  readonly name: string
  readonly standardHeaders: false | 'draft-6' | 'draft-7' | 'draft-10'
  readonly legacyHeaders: boolean
  readonly ipv6Subnet: number | false | Of<number | false>
  readonly requestPropertyName: string
}

export const COMMON = ['requestPropertyName', 'validate', 'logger']
export const OF_ROUTES = [...COMMON, 'policy', 'route', 'user', 'values', 'answers']
export const OF_RULE = [
  ...COMMON,
  'windowMs',
  'limit',
  'max',
  'algorithm',
  'cost',
  'keyGenerator',
  'ipv6Subnet',
  'skip',
  'handler',
  'message',
  'statusCode',
  'retryAfter',
  'standardHeaders',
  'legacyHeaders',
  'headers',
  'name',
  'identifier',
  'skipFailedRequests',
  'skipSuccessfulRequests',
  'requestWasSuccessful',
  'onError',
  'passOnStoreError',
  'url',
  'prefix',
  'deadline',
  'policy',
  'clock',
]

/** What to write instead of options that others have, or had. */
const INSTEAD: Readonly<Record<string, string>> = {
  store: "write url: 'redis://127.0.0.1:6379', or policy: one that has a store",
  onLimitReached: 'write handler',
  draft_polli_ratelimit_headers: "write standardHeaders: 'draft-6'",
  window: 'write windowMs',
  windowMS: 'write windowMs',
  key: 'write keyGenerator',
  redis: "write url: 'redis://127.0.0.1:6379'",
  trustProxy: "write app.set('trust proxy', ...)",
}

const DEFAULT_MESSAGE = 'Too many requests, please try again later.'

/**
 * Refuses an option that is not known, which would be ignored, with the nearest that is.
 *
 * @throws SetupError
 */
export function known(options: object, names: readonly string[], kind: string, checks: Checks): void {
  for (const name of Object.keys(options)) {
    if (names.includes(name)) continue
    if (name === 'store') throw new SetupError('ERR_TIDEGATE_STORE', 'store is not taken', INSTEAD['store']!)
    if (!checks.isOn('knownOptions')) continue
    const hint = names === OF_ROUTES && OF_RULE.includes(name) ? OTHER_KIND : (INSTEAD[name] ?? nearest(name, names))
    throw new SetupError('ERR_TIDEGATE_UNKNOWN_OPTION', `${name} is no option ${kind}`, hint)
  }
}

const OTHER_KIND =
  "write it into the document, whose routes decide here, or write windowMs and limit for a rule of this limiter's own"

const FUNCTIONS = ['keyGenerator', 'skip', 'handler', 'requestWasSuccessful', 'user']
const NUMBERS = ['limit', 'max', 'cost', 'retryAfter', 'statusCode']

/**
 * Refuses what is of another type than its option, such as a limit that is text from the environment.
 *
 * @throws SetupError
 */
export function typed(options: object): void {
  for (const [name, value] of Object.entries(options)) {
    const isWrong = FUNCTIONS.includes(name)
      ? typeof value !== 'function'
      : NUMBERS.includes(name) && typeof value !== 'number' && (typeof value !== 'function' || name === 'statusCode')
    if (!isWrong) continue
    const hint = FUNCTIONS.includes(name) ? `write ${name}: (req) => ...` : `write ${name}: Number(...)`
    throw new SetupError('ERR_TIDEGATE_TYPE', `${name} is ${value === null ? 'null' : `a ${typeof value}`}`, hint)
  }
  if ('requestPropertyName' in options) free(options.requestPropertyName)
}

/** Refuses the name of a property that requests have already. */
function free(property: unknown): void {
  const isName = typeof property === 'string' && property !== ''
  if (isName && !(property in new IncomingMessage(new Socket()))) return
  const what = `requestPropertyName is ${inspect(property)}${isName ? ', which requests have already' : ''}`
  throw new SetupError('ERR_TIDEGATE_PROPERTY', what, "write a name that nobody else uses, such as 'rateLimit'")
}

/**
 * The options of a rule, with defaults and under one name each.
 *
 * @throws SetupError where two say the same thing differently, or one says nothing
 */
export function settings(options: RateLimitOptions): Settings {
  const { max, headers, identifier, passOnStoreError, ...rest } = options
  const onError = passOnStoreError === undefined ? undefined : passOnStoreError ? ('allow' as const) : ('deny' as const)
  const limit = either('limit', rest.limit, 'max', max) ?? 5
  const windowMs = rest.windowMs ?? 60_000
  if (typeof windowMs !== 'string' && !(Number.isInteger(windowMs) && windowMs > 0)) {
    throw new SetupError(
      'ERR_TIDEGATE_WINDOW',
      `windowMs is ${String(windowMs)}`,
      "write whole milliseconds, or text: '15m'",
    )
  }
  const { statusCode = 429 } = rest
  if (!Number.isInteger(statusCode) || statusCode < 200 || statusCode > 599) {
    throw new SetupError('ERR_TIDEGATE_STATUS', `statusCode is ${statusCode}`, 'write 400 to 599')
  }
  if (identifier !== undefined && typeof identifier !== 'string') {
    const hint = "write text: a rule's name is its bucket, so it cannot change from request to request"
    throw new SetupError('ERR_TIDEGATE_IDENTIFIER', `identifier is a ${typeof identifier}`, hint)
  }
  if (rest.policy !== undefined && !(rest.policy instanceof Policy)) {
    const hint = 'write a Policy, or leave windowMs and limit out for the routes of a document'
    throw new SetupError('ERR_TIDEGATE_TYPE', 'policy is none beside windowMs and limit', hint)
  }
  if (rest.policy !== undefined && rest.clock !== undefined) {
    throw new SetupError(
      'ERR_TIDEGATE_CONFLICTING_OPTIONS',
      'policy has a clock already',
      'write one of policy and clock',
    )
  }
  const standard = rest.standardHeaders ?? false
  return given({
    ...rest,
    windowMs,
    limit,
    statusCode,
    message: rest.message ?? DEFAULT_MESSAGE,
    name: either('name', rest.name, 'identifier', identifier) ?? derivedName(limit, windowMs),
    standardHeaders: standard === true ? 'draft-6' : standard === 'draft-8' ? 'draft-10' : standard,
    legacyHeaders: either('legacyHeaders', rest.legacyHeaders, 'headers', headers) ?? true,
    onError: either('onError', rest.onError, 'passOnStoreError', onError),
    ipv6Subnet: rest.ipv6Subnet ?? 56,
    requestPropertyName: rest.requestPropertyName ?? 'rateLimit',
  })
}

function either<T>(name: string, value: T | undefined, other: string, alias: T | undefined): T | undefined {
  if (value !== undefined && alias !== undefined && value !== alias) {
    throw new SetupError('ERR_TIDEGATE_CONFLICTING_OPTIONS', `${name} and ${other} differ`, `write ${name} alone`)
  }
  return value ?? alias
}

const UNITS: readonly (readonly [number, string])[] = [
  [86_400_000, 'day'],
  [3_600_000, 'hr'],
  [60_000, 'min'],
]

/** Such as `5-in-15min`; a limit that is worked out for each request is left out, so that all of them share a bucket. */
function derivedName(limit: number | Of<number>, windowMs: Duration): string {
  const window = typeof windowMs === 'number' ? duration(windowMs) : windowMs
  return typeof limit === 'number' ? `${limit}-in-${window}` : `in-${window}`
}

function duration(ms: number): string {
  const [unit, name] = UNITS.find(([unit]) => ms >= unit) ?? [1000, 'sec']
  const count = ms / unit
  return `${count}${name}${(name === 'hr' || name === 'day') && count > 1 ? 's' : ''}`
}
