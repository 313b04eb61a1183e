import type { FastifyRequest } from 'fastify'

import type { Asks, Identity } from '../http.js'
import type { Document, Duration, Policy } from '../index.js'
import { BASICS, type OnError, type RuleBasics } from '../judge.js'
import { checkFunction, checkLimit, checkWindow, refuseUnknown, SetupError } from '../setup.js'

/** Something that is worked out for each request; it may come by a promise. */
export type Of<T> = (request: FastifyRequest) => T | PromiseLike<T>

/** The same, of a request whose key is known. */
export type OfKey<T> = (request: FastifyRequest, key: string) => T | PromiseLike<T>

/** The hooks in which a request may be judged. */
export type Hook = 'onRequest' | 'preParsing' | 'preValidation' | 'preHandler'

/** What an `errorResponseBuilder` is told of a refusal. */
export interface ErrorContext {
  statusCode: number
  /** Never: there are no bans here. */
  ban: false
  max: number
  /** Milliseconds until the request passes. */
  ttl: number
  /** The same in words, such as `1 minute`. */
  after: string
}

/** What the plugin and each of its routes may say. */
export interface RouteRateLimit extends Pick<RuleBasics, 'algorithm' | 'onError'> {
  /** Units per window, 0 (nothing passes) to 10,000,000. @defaultValue 1,000 */
  max?: number | OfKey<number> | undefined
  /** The window: milliseconds, or text such as `'1 minute'`; 1 ms to 366 days. @defaultValue a minute */
  timeWindow?: Duration | OfKey<Duration> | undefined
  /** Units that a request takes, from 1. @defaultValue 1 */
  cost?: number | Of<number> | undefined
  /** Who is limited. @defaultValue the client's address, `request.ip` */
  keyGenerator?: Of<Identity> | undefined
  /** Routes with one `groupId` have one budget: it is the name of their rule. */
  groupId?: string | undefined
  /** The rule's name, which is its bucket. @defaultValue `fastify`; of a route, such as `GET /items/:id` */
  name?: string | undefined
  /** Keys that are not limited. */
  allowList?: readonly string[] | OfKey<boolean> | undefined
  /** How many bits of an IPv6 address are one client, 32 to 128. @defaultValue 64 */
  ipv6Subnet?: number | undefined
  /** In which hook a request is judged. @defaultValue `onRequest` */
  hook?: Hook | undefined
  /** What is thrown for a refusal, instead of the core's answer. */
  errorResponseBuilder?: ((request: FastifyRequest, context: ErrorContext) => unknown) | undefined
  /** `ratelimit-` fields of the draft's revision 6 instead of `x-ratelimit-`. @defaultValue `false` */
  enableDraftSpec?: boolean | undefined
  /** Which fields there are, as `http.headers` of a document, instead. */
  headers?: readonly string[] | undefined
  /** Fields that a refusal does not have: `{ 'x-ratelimit-reset': false }`. */
  addHeaders?: Readonly<Record<string, boolean>> | undefined
  /** Fields that other responses do not have. */
  addHeadersOnExceeding?: Readonly<Record<string, boolean>> | undefined
  /** `true` is `onError: 'allow'`, `false` is `onError: 'deny'`. */
  skipOnError?: boolean | undefined
  /** Is told of requests that pass. */
  onExceeding?: ((request: FastifyRequest, key: string) => void) | undefined
  /** Is told of requests that are refused. */
  onExceeded?: ((request: FastifyRequest, key: string) => void) | undefined
  /** Statuses after which units are given back, such as `404` and `'5xx'`. @defaultValue none */
  refundStatus?: readonly (number | string)[] | undefined
}

/** The plugin with a rule of its own, with the options of @fastify/rate-limit. */
export interface RateLimitOptions extends RouteRateLimit, RuleBasics {
  /** Whether routes are limited that say nothing. @defaultValue `true` */
  global?: boolean | undefined
  /** The same as `prefix`. */
  nameSpace?: string | undefined
}

/** The plugin by the routes of a document. */
export interface RoutesOptions extends Asks<FastifyRequest> {
  /** A policy, a document, or the path of one. */
  policy: Policy | Document | string
  /** Whether all requests are judged by their paths, or those alone whose `config.rateLimit` says so. */
  global?: boolean | undefined
  /** In which hook. @defaultValue `onRequest` */
  hook?: Hook | undefined
}

/** Where a document has the rules: a route of it by its name, whatever the request's path is. */
export interface NamedRoute {
  route: string
}

const OF_ROUTE = [
  ...['max', 'timeWindow', 'cost', 'keyGenerator', 'groupId', 'name', 'allowList', 'ipv6Subnet', 'hook', 'headers'],
  ...['errorResponseBuilder', 'enableDraftSpec', 'addHeaders', 'addHeadersOnExceeding', 'skipOnError'],
  ...['onExceeding', 'onExceeded', 'refundStatus', 'algorithm', 'onError'],
]
const OF_RULE = [...new Set([...OF_ROUTE, ...BASICS, 'global', 'nameSpace'])]
const OF_ROUTES = ['policy', 'global', 'hook', 'user', 'values', 'answers']
const HOOKS: readonly string[] = ['onRequest', 'preParsing', 'preValidation', 'preHandler']

const NO_BAN = 'leave it out: nobody is banned here; a second rule with a longer window keeps those away who go on'
const INSTEAD = {
  redis: "write url: 'redis://127.0.0.1:6379'",
  store: "write url: 'redis://127.0.0.1:6379'; tidegate/stores has a store for @fastify/rate-limit itself",
  cache: 'leave it out; a policy whose document has store.max_keys says how many keys memory keeps',
  ban: NO_BAN,
  onBanReach: NO_BAN,
  continueExceeding: 'leave it out: a refused request is not counted, and does not move the window',
  exponentialBackoff: 'leave it out: the wait is what the limit says, in Retry-After',
  windowMs: 'write timeWindow',
  limit: 'write max',
}
/** What these say that others have, where they are switched off. */
const OFF: Readonly<Record<string, unknown>> = { ban: -1, continueExceeding: false, exponentialBackoff: false }

/**
 * Looks at the plugin's options, or at a route's.
 *
 * @returns them without those that switch off what is not here
 * @throws SetupError
 */
export function checked<T extends RouteRateLimit>(options: T, kind: 'plugin' | 'route'): T {
  const rest = Object.fromEntries(Object.entries(options).filter(([name, value]) => OFF[name] !== value)) as T
  const ofPlugin = 'write it where the plugin is registered: all routes have one store'
  const elsewhere = Object.fromEntries([...BASICS, 'global', 'nameSpace'].map((name) => [name, ofPlugin]))
  if (kind === 'plugin') refuseUnknown(rest, OF_RULE, INSTEAD)
  else refuseUnknown(rest, OF_ROUTE, { ...elsewhere, ...INSTEAD })
  const { max, timeWindow, allowList, groupId } = rest
  if (max !== undefined && typeof max !== 'function') checkLimit('max', max)
  if (timeWindow !== undefined && typeof timeWindow !== 'function') checkWindow('timeWindow', timeWindow)
  if (allowList !== undefined && !Array.isArray(allowList)) checkFunction('allowList', allowList)
  for (const name of ['keyGenerator', 'errorResponseBuilder', 'onExceeding', 'onExceeded'] as const) {
    checkFunction(name, rest[name])
  }
  checkHook(rest.hook)
  if (groupId !== undefined && (typeof groupId !== 'string' || groupId === '')) {
    throw new SetupError('ERR_TIDEGATE_TYPE', `groupId is ${JSON.stringify(groupId)}`, "write text: groupId: 'x'")
  }
  if (groupId !== undefined && rest.name !== undefined) {
    throw new SetupError('ERR_TIDEGATE_CONFLICTING_OPTIONS', 'groupId and name are both names', 'write one of them')
  }
  return rest.skipOnError === undefined ? rest : { ...rest, onError: ofSkip(rest.skipOnError, rest.onError) }
}

function ofSkip(skipOnError: boolean, onError: OnError | undefined): OnError {
  if (onError === undefined) return skipOnError ? 'allow' : 'deny'
  if (skipOnError === (onError === 'allow')) return onError
  const what = 'skipOnError and onError differ'
  throw new SetupError('ERR_TIDEGATE_CONFLICTING_OPTIONS', what, 'write onError alone')
}

/** @throws SetupError */
export function checkRoutes(options: RoutesOptions): void {
  const said = 'write it into the document, or max and timeWindow too for a rule of the plugin'
  const ofRule = Object.fromEntries(OF_RULE.map((name) => [name, said]))
  refuseUnknown(options, OF_ROUTES, { ...INSTEAD, ...ofRule })
  checkHook(options.hook)
}

function checkHook(hook: string | undefined): void {
  if (hook === undefined || HOOKS.includes(hook)) return
  throw new SetupError('ERR_TIDEGATE_HOOK', `hook is ${JSON.stringify(hook)}`, `write one of ${HOOKS.join(', ')}`)
}

/** Whether nothing is said that makes a rule: then the document has all of them. */
export function isRoutes(options: RateLimitOptions | RoutesOptions): options is RoutesOptions {
  return options.policy !== undefined && !('max' in options || 'timeWindow' in options)
}
