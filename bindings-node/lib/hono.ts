/** Rate limits for Hono on Node, served by `@hono/node-server`. */

import type { IncomingMessage } from 'node:http'

import type { Context, MiddlewareHandler, Next } from 'hono'

import { type Asks, type Fields, type Identity, setFields, setRefusal, wirePath } from './http.js'
import type { Admission, Document, Duration, Policy } from './index.js'
import { admissionOf as lastOf, type RateLimitInfo } from './info.js'
import { BASICS, type Call, type Incoming, type Judged, type Of, OneRule, Routes, type RuleBasics } from './judge.js'
import { checkFunction, checkLimit, checkWindow, given, MOST, refuseUnknown, SetupError } from './setup.js'

export type { Ask, Identity } from './http.js'
export type { RateLimitInfo } from './info.js'
export type { Algorithm } from './index.js'
export type { OnError } from './judge.js'
export { SetupError } from './setup.js'

declare module 'hono' {
  interface ContextVariableMap {
    /** How the limit of this request stands, by the last limiter that it has passed. */
    rateLimit: RateLimitInfo | undefined
  }
}

/** What answers a request that its limit refuses; it may call `next` to let it pass all the same. */
export type Handler = (c: Context, next: Next, options: RateLimitOptions) => Response | void | Promise<Response | void>

/** Options that both kinds of limiters have. */
export interface CommonOptions {
  /** Under which name `c.get` has the figures. @defaultValue `rateLimit` */
  requestPropertyName?: string | undefined
}

/** A limiter with one rule of its own, with the options of express-rate-limit and hono-rate-limiter. */
export interface RateLimitOptions extends CommonOptions, RuleBasics {
  /** The window: milliseconds, or text such as `'15m'`; 1 ms to 366 days. @defaultValue 60,000 */
  windowMs?: Duration | undefined
  /** So many units per window, 0 (nothing passes) to 10,000,000. @defaultValue 5 */
  limit?: number | Of<Context, number> | undefined
  /** Units that a request takes, from 1. @defaultValue 1 */
  cost?: number | Of<Context, number> | undefined
  /** Who is limited. @defaultValue the address of the connection */
  keyGenerator?: Of<Context, Identity> | undefined
  /** How many bits of an IPv6 address are one client, 32 to 128. @defaultValue 64 */
  ipv6Subnet?: number | undefined
  /** Requests that are not limited. */
  skip?: Of<Context, boolean> | undefined
  /** Answers a request that is refused. */
  handler?: Handler | undefined
  /** The body of a refusal: text, something to send as JSON, or a function of either. @defaultValue the core's */
  message?: string | object | Of<Context, string | object> | undefined
  /** The status of a refusal. @defaultValue 429 */
  statusCode?: number | undefined
  /** `RateLimit` fields: `draft-6` (also `true`), `draft-7`, or `draft-8`, which is `draft-10`. @defaultValue `draft-6` */
  standardHeaders?: boolean | 'draft-6' | 'draft-7' | 'draft-8' | 'draft-10' | undefined
  /** The rule's name, which is its bucket; 1 to 64 bytes. @defaultValue `hono` */
  name?: string | undefined
  /** Gives back what requests took that were answered with 400 or above. @defaultValue `false` */
  skipFailedRequests?: boolean | undefined
  /** Gives back what requests took that were answered below 400. @defaultValue `false` */
  skipSuccessfulRequests?: boolean | undefined
  /** What these two go by. @defaultValue a status below 400 */
  requestWasSuccessful?: Of<Context, boolean> | undefined
}

/** A limiter by the routes of a document. */
export interface RoutesOptions extends CommonOptions, Asks<Context> {
  /** A policy, a document, or the path of one. */
  policy: Policy | Document | string
  /** A route of it by its name, whatever the request's path is. */
  route?: string | undefined
}

/** A limiter as Hono takes it. */
export interface RateLimiter extends MiddlewareHandler {
  /** Closes what the limiter has opened; it must not be used any more. Twice does nothing. */
  close(): void
}

const COMMON = ['requestPropertyName']
const OF_ROUTES = [...COMMON, 'policy', 'route', 'user', 'values', 'answers']
const OF_RULE = [
  ...[...COMMON, ...BASICS, 'windowMs', 'limit', 'cost', 'keyGenerator', 'ipv6Subnet', 'skip', 'handler', 'message'],
  ...['statusCode', 'standardHeaders', 'name', 'skipFailedRequests', 'skipSuccessfulRequests', 'requestWasSuccessful'],
]
const INSTEAD = {
  store: "write url: 'redis://127.0.0.1:6379'",
  binding: "write url: 'redis://127.0.0.1:6379'",
  legacyHeaders: 'write standardHeaders; for X-RateLimit fields use a policy, whose document has http.headers',
  max: 'write limit',
}

/**
 * Limits requests: with `policy` alone by the routes of its document, otherwise by one rule of its own.
 *
 * ```js
 * app.use(rateLimit({ windowMs: '15m', limit: 100 }))
 * app.use(rateLimit({ policy: 'limits.toml' }))
 * ```
 *
 * @throws SetupError for options that cannot work; TidegateError for what a document cannot say
 */
export function rateLimit(options: RateLimitOptions | RoutesOptions = {}): RateLimiter {
  const all = given(options)
  const limit = isRoutes(all) ? byRoutes(all) : byRule(all)
  const property = all.requestPropertyName ?? 'rateLimit'
  const middleware: MiddlewareHandler = (c, next) => handle(limit, property, c, next)
  return Object.assign(middleware, { close: limit.close })
}

/** What the last limiter that a request passed has decided; undefined where there was none. */
export function admissionOf(c: Context): Admission | undefined {
  const incoming = socketOf(c) ?? without.get(c.req.raw)
  return incoming && lastOf(incoming)
}

/** What both kinds come to. */
interface Limit {
  /** Null where the request is not limited. */
  judge(c: Context): Promise<Judged | null>
  /** Answers a refusal; null leaves it to the core. */
  answer(c: Context, next: Next, admission: Admission, before: Admission | undefined): Promise<Answer | null>
  /** Once the response is known. */
  over(c: Context, admission: Admission): void
  close(): void
}

/** A response; nothing where the application has let the request pass, and there is one already. */
interface Answer {
  readonly response: Response | void
}

function isRoutes(options: RateLimitOptions | RoutesOptions): options is RoutesOptions {
  return options.policy !== undefined && !('limit' in options || 'windowMs' in options)
}

function byRoutes(options: RoutesOptions): Limit {
  const key = 'write the key into the document, or limit and windowMs here'
  refuseUnknown(options, OF_ROUTES, { ...INSTEAD, keyGenerator: key })
  const { policy, route, user, values, answers } = options
  const routes = new Routes<Context>(policy, { user, values, answers }, (error) => console.warn(error))
  if (route !== undefined) routes.policy.named('GET', route)
  return {
    judge: async (c) => {
      const incoming = needed(c, 'a document has who is limited, and needs the connection')
      if (route !== undefined) return routes.byName(c.req.method, route, incoming, c)
      return routes.byPath(c.req.method, wirePath(c.req.url), incoming, c)
    },
    answer: async () => null,
    over: (c, admission) => void admission.settle(c.res.status),
    close: () => routes.close(),
  }
}

function byRule(options: RateLimitOptions): Limit {
  check(options)
  const { limit = 5, windowMs = 60_000, cost = 1, standardHeaders: standard = 'draft-6' } = options
  const headers = standard === true ? 'draft-6' : standard === 'draft-8' ? 'draft-10' : standard
  const rule = new OneRule(
    {
      name: options.name ?? 'hono',
      limit: typeof limit === 'number' ? limit : MOST,
      isLimitTold: typeof limit === 'function',
      window: windowMs,
      isKeyed: options.keyGenerator !== undefined,
      cost: typeof cost === 'number' ? cost : 'told',
      subnet: options.ipv6Subnet ?? 64,
      fields: { headers: headers === false ? [] : [headers] },
    },
    options,
    (error) => console.warn(error),
  )
  if (options.name === undefined) rule.warnOfName()
  return {
    judge: (c) => judge(options, rule, c),
    answer: (c, next, admission, before) => answer(options, c, next, admission, before),
    over: (c, admission) => void giveBack(options, c, admission),
    close: () => rule.close(),
  }
}

/** Looks at what the core does not see. */
function check(options: RateLimitOptions): void {
  refuseUnknown(options, OF_RULE, INSTEAD)
  const { limit, windowMs } = options
  if (limit !== undefined && typeof limit !== 'function') checkLimit('limit', limit)
  if (windowMs !== undefined) checkWindow('windowMs', windowMs)
  for (const name of ['keyGenerator', 'skip', 'handler', 'requestWasSuccessful'] as const) {
    checkFunction(name, options[name])
  }
}

async function judge(options: RateLimitOptions, rule: OneRule, c: Context): Promise<Judged | null> {
  const { keyGenerator, skip, limit, cost } = options
  if (skip !== undefined && (await skip(c))) return null
  const call: Call = {}
  let incoming: Incoming
  if (keyGenerator === undefined) {
    incoming = needed(c, 'without keyGenerator the address of the connection is the key')
    call.ip = incoming.socket?.remoteAddress
  } else {
    incoming = socketOf(c) ?? withoutSocket(c.req.raw)
    call.key = await keyGenerator(c)
  }
  if (typeof limit === 'function') {
    call.limit = await limit(c)
    checkLimit('what limit has given', call.limit)
  }
  if (typeof cost === 'function') call.cost = await cost(c)
  return rule.judge(call, incoming)
}

/** The request of Node's server behind it; undefined where there is none, as in `app.request()`. */
function socketOf(c: Context): (IncomingMessage & Incoming) | undefined {
  const env = c.env as { incoming?: IncomingMessage; server?: { incoming?: IncomingMessage } } | undefined
  return (env?.server ?? env)?.incoming
}

function needed(c: Context, why: string): Incoming {
  const incoming = socketOf(c)
  if (incoming !== undefined) return incoming
  const hint = 'serve the application with @hono/node-server, or write limit, windowMs and keyGenerator'
  throw new SetupError('ERR_TIDEGATE_NO_SOCKET', `the request came over no socket of Node, and ${why}`, hint)
}

/** Requests that came over no socket, as an `Incoming`. */
const without = new WeakMap<Request, Incoming>()

function withoutSocket(request: Request): Incoming {
  const incoming = without.get(request) ?? { headers: Object.fromEntries(request.headers), socket: null }
  without.set(request, incoming)
  return incoming
}

/** Answers a refusal as the options say. */
async function answer(
  options: RateLimitOptions,
  c: Context,
  next: Next,
  admission: Admission,
  before: Admission | undefined,
): Promise<Answer | null> {
  const { handler, message, statusCode } = options
  const isAnswered = handler !== undefined || message !== undefined || statusCode !== undefined
  if (admission.outcome !== 'refused' || !isAnswered) return null
  setFields(fieldsOf(c), admission, before, message === undefined && handler === undefined)
  if (handler !== undefined) return { response: await handler(c, next, options) }
  const body = typeof message === 'function' ? await message(c) : (message ?? admission.body ?? '')
  c.status((statusCode ?? admission.status ?? 429) as Parameters<Context['status']>[0])
  return { response: typeof body === 'string' ? c.body(body) : c.json(body) }
}

async function handle(limit: Limit, property: string, c: Context, next: Next): Promise<Response | void> {
  const before = admissionOf(c)
  const judged = await limit.judge(c)
  if (judged === null) return next()
  const { admission, info } = judged
  if (info !== undefined) c.set(property, info)
  if (!admission.allowed) {
    const answer = await limit.answer(c, next, admission, before)
    return answer === null ? refusal(c, admission, before) : answer.response
  }
  await next()
  // A limiter further inside tells of this one's limits too, and has set its fields already.
  setFields(fieldsOf(c), admission)
  limit.over(c, admission)
}

function refusal(c: Context, admission: Admission, before: Admission | undefined): Response {
  setRefusal(fieldsOf(c), admission, before)
  return c.body(admission.body ?? '', (admission.status ?? 429) as 429)
}

/** The fields of the response, which may be there already or may be made later. */
function fieldsOf(c: Context): Fields {
  return {
    getHeader: (name) => c.res.headers.get(name) ?? undefined,
    setHeader: (name, value) => c.header(name, value),
    removeHeader: (name) => c.header(name),
  }
}

/** Gives back what a request took, if its response shows that it does not count. */
async function giveBack(options: RateLimitOptions, c: Context, admission: Admission): Promise<void> {
  const { skipFailedRequests, skipSuccessfulRequests, requestWasSuccessful } = options
  if (skipFailedRequests !== true && skipSuccessfulRequests !== true) return
  try {
    const wasSuccessful = requestWasSuccessful === undefined ? c.res.status < 400 : await requestWasSuccessful(c)
    if ((wasSuccessful ? skipSuccessfulRequests : skipFailedRequests) === true) await admission.undo()
  } catch (error) {
    const what = `requestWasSuccessful has failed: ${String(error)}`
    const hint = 'what the request took stays taken'
    console.error(new SetupError('ERR_TIDEGATE_REQUEST_WAS_SUCCESSFUL', what, hint))
  }
}
