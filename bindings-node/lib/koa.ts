/** Rate limits for Koa 2 and 3. */

import type { ServerResponse } from 'node:http'

import type { Context, Middleware, Next } from 'koa'

import { type Asks, type Identity, limitFields, setFields, setRefusal } from './http.js'
import type { Admission, Document, Duration, Policy } from './index.js'
import { admissionOf as lastOf } from './info.js'
import { BASICS, type Call, type Judged, type Of, OneRule, Routes, type RuleBasics } from './judge.js'
import { checkFunction, checkLimit, checkWindow, given, MOST, refuseUnknown, SetupError } from './setup.js'

export type { Ask, Identity } from './http.js'
export type { RateLimitInfo } from './info.js'
export type { Algorithm } from './index.js'
export type { OnError } from './judge.js'
export { SetupError } from './setup.js'

/** A limiter with one rule of its own, with the options of koa-ratelimit. */
export interface RateLimitOptions extends RuleBasics {
  /** Units per window, 0 (nothing passes) to 10,000,000. @defaultValue 2,500 */
  max?: number | Of<Context, number> | undefined
  /** The window: milliseconds, or text such as `'15m'`; 1 ms to 366 days. @defaultValue an hour */
  duration?: Duration | undefined
  /** Who is limited; `false` is not limited. @defaultValue the client's address, `ctx.ip` */
  id?: Of<Context, Identity> | undefined
  /** Requests that are not limited. */
  whitelist?: Of<Context, boolean> | undefined
  /** Requests that are answered with 403 and not counted. */
  blacklist?: Of<Context, boolean> | undefined
  /** Throws a refusal, with its status and fields, instead of answering it. @defaultValue `false` */
  throw?: boolean | undefined
  /** The body of a refusal. @defaultValue the core's, by `Accept` */
  errorMessage?: string | object | undefined
  /** The status of a refusal. @defaultValue 429 */
  status?: number | undefined
  /** Is told of requests that are refused. */
  onLimited?: ((ctx: Context) => void) | undefined
  /** Which fields responses have, as `http.headers` of a document. @defaultValue `['x-ratelimit']` */
  headers?: readonly string[] | undefined
  /** No fields but `Retry-After`: the same as `headers: []`. */
  disableHeader?: boolean | undefined
  /** The rule's name, which is its bucket; 1 to 64 bytes. @defaultValue `koa` */
  name?: string | undefined
  /** Units that a request takes, from 1. @defaultValue 1 */
  cost?: number | Of<Context, number> | undefined
  /** How many bits of an IPv6 address are one client, 32 to 128. @defaultValue 64 */
  ipv6Subnet?: number | undefined
  /** Statuses after which units are given back, such as `404` and `'5xx'`. @defaultValue none */
  refundStatus?: readonly (number | string)[] | undefined
}

/** A limiter by the routes of a document. */
export interface RoutesOptions extends Asks<Context> {
  /** A policy, a document, or the path of one. */
  policy: Policy | Document | string
  /** A route of it by its name, whatever the request's path is. */
  route?: string | undefined
}

/** A limiter as Koa takes it. */
export interface RateLimiter extends Middleware {
  /** Closes what the limiter has opened; it must not be used any more. Twice does nothing. */
  close(): void
}

const OF_ROUTES = ['policy', 'route', 'user', 'values', 'answers']
const OF_RULE = [
  ...['max', 'duration', 'id', 'whitelist', 'blacklist', 'throw', 'errorMessage', 'status', 'onLimited', 'headers'],
  ...['disableHeader', 'name', 'cost', 'ipv6Subnet', 'refundStatus', ...BASICS],
]
const INSTEAD = {
  driver: "leave it out, and write url: 'redis://127.0.0.1:6379' unless state is to be in memory",
  db: "write url: 'redis://127.0.0.1:6379'",
  namespace: 'write prefix',
  windowMs: 'write duration',
  limit: 'write max',
}

/**
 * Limits requests: with `policy` alone by the routes of its document, otherwise by one rule of its own.
 *
 * ```js
 * app.use(rateLimit({ max: 100, duration: '15m' }))
 * app.use(rateLimit({ policy: 'limits.toml' }))
 * ```
 *
 * @throws SetupError for options that cannot work; TidegateError for what a document cannot say
 */
export function rateLimit(options: RateLimitOptions | RoutesOptions = {}): RateLimiter {
  const all = given(options)
  const limit = isRoutes(all) ? byRoutes(all) : byRule(all)
  const middleware: Middleware = (ctx, next) => handle(limit, ctx, next)
  return Object.assign(middleware, { close: limit.close })
}

/** What the last limiter that a request passed has decided; undefined where there was none. */
export function admissionOf(ctx: Context): Admission | undefined {
  return lastOf(ctx.req)
}

/** What both kinds come to. */
interface Limit {
  /** Null where the request is not limited. */
  judge(ctx: Context): Promise<Judged | null>
  /** Answers a refusal; false leaves it to the core. */
  answer(ctx: Context, admission: Admission, before: Admission | undefined): boolean
  close(): void
}

function isRoutes(options: RateLimitOptions | RoutesOptions): options is RoutesOptions {
  return options.policy !== undefined && !('max' in options || 'duration' in options)
}

function byRoutes(options: RoutesOptions): Limit {
  refuseUnknown(options, OF_ROUTES, { ...INSTEAD, id: 'write the key into the document, or max and duration here' })
  const { policy, route, ...asks } = options
  const routes = new Routes<Context>(policy, asks, (error) => console.warn(error))
  if (route !== undefined) routes.policy.named('GET', route)
  return {
    judge: (ctx) =>
      route === undefined
        ? routes.byPath(ctx.method, ctx.path || '/', ctx.req, ctx)
        : routes.byName(ctx.method, route, ctx.req, ctx),
    answer: () => false,
    close: () => routes.close(),
  }
}

function byRule(options: RateLimitOptions): Limit {
  check(options)
  const { max = 2_500, duration = 3_600_000, cost = 1, headers = ['x-ratelimit'], disableHeader } = options
  const rule = new OneRule(
    {
      name: options.name ?? 'koa',
      limit: typeof max === 'number' ? max : MOST,
      isLimitTold: typeof max === 'function',
      window: duration,
      isKeyed: options.id !== undefined,
      cost: typeof cost === 'number' ? cost : 'told',
      subnet: options.ipv6Subnet ?? 64,
      fields: { headers: disableHeader === true ? [] : headers },
      refundStatus: options.refundStatus,
    },
    options,
    (error) => console.warn(error),
  )
  if (options.name === undefined) rule.warnOfName()
  return {
    judge: (ctx) => judge(options, rule, ctx),
    answer: (ctx, admission, before) => answer(options, ctx, admission, before),
    close: () => rule.close(),
  }
}

/** Looks at what the core does not see. */
function check(options: RateLimitOptions): void {
  refuseUnknown(options, OF_RULE, INSTEAD)
  const { max, duration, headers } = options
  if (max !== undefined && typeof max !== 'function') checkLimit('max', max)
  if (duration !== undefined) checkWindow('duration', duration)
  for (const name of ['id', 'whitelist', 'blacklist', 'onLimited'] as const) checkFunction(name, options[name])
  if (headers !== undefined && !Array.isArray(headers)) {
    const hint = "write which fields there are: headers: ['x-ratelimit', 'draft-10']; their names are what they are"
    throw new SetupError('ERR_TIDEGATE_HEADERS', 'headers is no list', hint)
  }
}

async function judge(options: RateLimitOptions, rule: OneRule, ctx: Context): Promise<Judged | null> {
  const { id, whitelist, blacklist, max, cost } = options
  if (blacklist !== undefined && (await blacklist(ctx))) ctx.throw(403, 'Forbidden')
  if (whitelist !== undefined && (await whitelist(ctx))) return null
  const call: Call = { ip: ctx.ip }
  if (id !== undefined) {
    call.key = await id(ctx)
    if (call.key === false) return null
  }
  if (typeof max === 'function') {
    call.limit = await max(ctx)
    checkLimit('what max has given', call.limit)
  }
  if (typeof cost === 'function') call.cost = await cost(ctx)
  return rule.judge(call, ctx.req)
}

/** Answers a refusal as the options say. */
function answer(options: RateLimitOptions, ctx: Context, admission: Admission, before: Admission | undefined): boolean {
  const { errorMessage, status, onLimited } = options
  if (admission.outcome !== 'refused') return false
  onLimited?.(ctx)
  if (options.throw === true) {
    // Koa takes all fields off a response to an error, but for those that the error has.
    const headers = Object.fromEntries(limitFields(admission))
    const message = typeof errorMessage === 'string' ? errorMessage : 'Too many requests, please try again later.'
    const properties = typeof errorMessage === 'object' ? { headers, body: errorMessage } : { headers }
    ctx.throw(status ?? admission.status ?? 429, message, properties)
  }
  if (errorMessage === undefined && status === undefined) return false
  setFields(ctx.res, admission, before, false)
  ctx.status = status ?? admission.status ?? 429
  ctx.body = errorMessage ?? admission.body
  return true
}

async function handle(limit: Limit, ctx: Context, next: Next): Promise<unknown> {
  const before = lastOf(ctx.req)
  const judged = await limit.judge(ctx)
  if (judged === null) return next()
  const { admission, info } = judged
  if (info !== undefined) ctx.state['rateLimit'] = info
  if (!admission.allowed) {
    if (!limit.answer(ctx, admission, before)) refuse(ctx, admission, before)
    return
  }
  setFields(ctx.res, admission, before)
  // A client that goes away before it has its answer has had the work done: only a response settles.
  ctx.res.once('finish', () => void admission.settle(ctx.res.statusCode))
  try {
    return await next()
  } catch (error) {
    onHead(ctx.res, () => setFields(ctx.res, admission, before))
    throw error
  }
}

function refuse(ctx: Context, admission: Admission, before: Admission | undefined): void {
  setRefusal(ctx.res, admission, before)
  ctx.status = admission.status ?? 429
  ctx.body = admission.body ?? ''
}

/** Koa takes all fields off the response to an error: they are set again as it begins. */
function onHead(response: ServerResponse, set: () => void): void {
  const { writeHead } = response
  response.writeHead = function head(this: ServerResponse, ...written: unknown[]) {
    response.writeHead = writeHead
    if (!response.headersSent) set()
    return writeHead.apply(this, written as Parameters<typeof writeHead>)
  } as typeof writeHead
}
