/** Rate limits for Fastify 5. */

import type {
  FastifyInstance,
  FastifyPluginAsync,
  FastifyReply,
  FastifyRequest,
  preHandlerAsyncHookHandler,
  RouteOptions,
} from 'fastify'

import {
  checked,
  checkRoutes,
  type Hook,
  isRoutes,
  type NamedRoute,
  type RateLimitOptions,
  type RouteRateLimit,
  type RoutesOptions,
} from './fastify/options.js'
import { pathOf } from './fastify/path.js'
import { fieldsOf, RuleLimit } from './fastify/rule.js'
import { setFields, setRefusal } from './http.js'
import type { Admission } from './index.js'
import { admissionOf as lastOf, type RateLimitInfo } from './info.js'
import { type Judged, Routes } from './judge.js'
import { given, nameOf as ruleName, SetupError } from './setup.js'

export type {
  ErrorContext,
  Hook,
  NamedRoute,
  Of,
  OfKey,
  RateLimitOptions,
  RouteRateLimit,
  RoutesOptions,
} from './fastify/options.js'
export type { Ask, Identity } from './http.js'
export type { Algorithm } from './index.js'
export type { RateLimitInfo } from './info.js'
export type { OnError } from './judge.js'
export { SetupError } from './setup.js'

declare module 'fastify' {
  interface FastifyContextConfig {
    /** The route's own limit, `false` for none, or a route of the policy by its name. */
    rateLimit?: RouteRateLimit | NamedRoute | false | undefined
  }
  interface FastifyInstance {
    /** A hook that judges requests: by a rule of its own, or by that of the plugin. */
    rateLimit(options?: RouteRateLimit | NamedRoute): preHandlerAsyncHookHandler
  }
  interface FastifyRequest {
    /** How the limit of this request stands; null where it is not limited, or the store has failed. */
    rateLimitInfo: RateLimitInfo | null
  }
}

/** What the last limiter that a request passed has decided; undefined where there was none. */
export function admissionOf(request: FastifyRequest): Admission | undefined {
  return lastOf(request.raw)
}

/** What judges the requests of a route. */
interface Limit {
  readonly hook: Hook | undefined
  /** Null where the request is not limited. */
  judge(request: FastifyRequest): Promise<Judged | null>
  passed(request: FastifyRequest, reply: FastifyReply, judged: Judged, before: Admission | undefined): void
  /** Sets the fields of a refusal, or throws. */
  refused(request: FastifyRequest, reply: FastifyReply, judged: Judged, before: Admission | undefined): void
}

type Said = RouteRateLimit | NamedRoute

/** The plugin's limits. */
interface Limits {
  /** That of the plugin itself. */
  readonly own: Limit
  /** The limit of what says more. @throws SetupError or TidegateError */
  of(said: Said, name: string): Limit
  close(): void
}

/**
 * The plugin: `fastify.register(rateLimit, { max: 100, timeWindow: '1 minute' })`, or
 * `fastify.register(rateLimit, { policy: 'limits.toml' })`.
 */
export const rateLimit: FastifyPluginAsync<RateLimitOptions | RoutesOptions> = async (fastify, options) => {
  const all = given(options)
  const limits = isRoutes(all) ? byRoutes(fastify, all) : byRules(fastify, all)
  fastify.addHook('onClose', async () => limits.close())
  if (!fastify.hasRequestDecorator('rateLimitInfo')) fastify.decorateRequest('rateLimitInfo', null)
  const judge = judging()
  if (!fastify.hasDecorator('rateLimit')) decorate(fastify, limits, judge)
  const { global = true } = all
  if (isRoutes(all) && global) judgeAll(fastify, limits, all.hook ?? 'onRequest', judge)
  else judgeRoutes(fastify, limits, global, judge)
}

// As fastify-plugin does it: what is registered is for the context that registers it, not for one of its own.
Object.assign(rateLimit, {
  [Symbol.for('skip-override')]: true,
  [Symbol.for('fastify.display-name')]: 'tidegate',
  [Symbol.for('plugin-meta')]: { name: 'tidegate', fastify: '5.x' },
})

export default rateLimit

type Handler = preHandlerAsyncHookHandler
type Judge = (limit: Limit, request: FastifyRequest, reply: FastifyReply) => Promise<unknown>

/** One limit of a plugin judges a request: the first that it comes to. */
function judging(): Judge {
  const judged = new WeakSet<FastifyRequest>()
  return async (limit, request, reply) => {
    if (judged.has(request)) return
    judged.add(request)
    const before = lastOf(request.raw)
    const found = await limit.judge(request)
    if (found === null) return
    const { admission, info } = found
    request.rateLimitInfo = info ?? null
    if (!admission.allowed) {
      limit.refused(request, reply, found, before)
      reply.code(admission.status ?? 429)
      // Bytes, whose type stays as it is.
      return reply.send(Buffer.from(admission.body ?? ''))
    }
    limit.passed(request, reply, found, before)
    // A client that goes away before it has its answer has had the work done: only a response settles.
    reply.raw.once('finish', () => void admission.settle(reply.raw.statusCode))
    return
  }
}

function decorate(fastify: FastifyInstance, limits: Limits, judge: Judge): void {
  let hooks = 0
  fastify.decorate('rateLimit', (said?: Said): Handler => {
    hooks += 1
    const limit = said === undefined ? limits.own : limits.of(said, `hook ${hooks}`)
    return (request, reply) => judge(limit, request, reply)
  })
}

/** A policy judges all requests of the context, those that no route is for too. */
function judgeAll(fastify: FastifyInstance, limits: Limits, hook: Hook, judge: Judge): void {
  const named = new Map<string, Limit>()
  const limitOf = (said: NamedRoute, name: string): Limit => {
    const limit = named.get(said.route) ?? limits.of(said, name)
    named.set(said.route, limit)
    return limit
  }
  fastify.addHook('onRoute', (route) => {
    const said = saidBy(route)
    if (said !== undefined && said !== false) limits.of(said, nameOf(route))
  })
  const handler: Handler = async (request, reply) => {
    const { config, url = request.url } = request.routeOptions
    const said = config.rateLimit
    if (said === false) return
    // One that was there before the plugin has not been looked at.
    const limit = said === undefined ? limits.own : limitOf(said as NamedRoute, url)
    return judge(limit, request, reply)
  }
  fastify.addHook(hook as 'preHandler', handler)
}

/** Each route that is added from now on is judged by its limit. */
function judgeRoutes(fastify: FastifyInstance, limits: Limits, global: boolean, judge: Judge): void {
  fastify.addHook('onRoute', (route) => {
    const said = saidBy(route)
    if (said === false || (said === undefined && !global)) return
    const limit = said === undefined ? limits.own : limits.of(said, nameOf(route))
    const handler: Handler = (request, reply) => judge(limit, request, reply)
    const hook = limit.hook ?? 'onRequest'
    const there: unknown = route[hook] ?? []
    Object.assign(route, { [hook]: [there, handler].flat() })
  })
}

/** What a route says of its limit. @throws SetupError */
function saidBy(route: RouteOptions): Said | false | undefined {
  const said: unknown = route.config?.rateLimit
  if (said === undefined || said === false) return said
  if (typeof said === 'object' && said !== null) return said
  const what = `config.rateLimit of ${nameOf(route)} is ${String(said)}`
  throw new SetupError('ERR_TIDEGATE_ROUTE_CONFIG', what, 'write an object, or false for no limit')
}

/** A route's name, such as `GET /items/:id`. A `HEAD` that Fastify adds to a `GET` has its name, and so its bucket. */
function nameOf({ method, url, constraints }: RouteOptions): string {
  const methods = [method].flat().join('|')
  const special = Object.entries(constraints ?? {}).map(([name, value]) => ` ${name}=${String(value)}`)
  return `${methods === 'HEAD' ? 'GET' : methods} ${url}${special.join('')}`
}

/** The routes of a document. */
function byRoutes(fastify: FastifyInstance, options: RoutesOptions): Limits {
  checkRoutes(options)
  const { policy, user, values, answers, hook } = options
  const routes = new Routes<FastifyRequest>(policy, { user, values, answers }, (error) => fastify.log.warn(error))
  const limit = (judge: Limit['judge']): Limit => ({
    hook,
    judge,
    passed: (_request, reply, { admission }, before) => setFields(fieldsOf(reply), admission, before),
    refused: (_request, reply, { admission }, before) => setRefusal(fieldsOf(reply), admission, before),
  })
  return {
    own: limit((request) => routes.byPath(request.method, pathOf(request), request.raw, request)),
    of: (said, name) => {
      if (!('route' in said) || Object.keys(said).length > 1) {
        const hint = "write { route: 'name' } of one of its routes, or the rule into the document"
        throw new SetupError('ERR_TIDEGATE_ROUTE_CONFIG', `${name} has a rule, and the plugin has a policy`, hint)
      }
      routes.policy.named('GET', said.route)
      return limit((request) => routes.byName(request.method, said.route, request.raw, request))
    },
    close: () => routes.close(),
  }
}

/** Rules of the plugin and of its routes, all on one store. */
function byRules(fastify: FastifyInstance, options: RateLimitOptions): Limits {
  const { name, groupId, ...plugin } = checked(options, 'plugin')
  const warn = (error: SetupError) => fastify.log.warn(error)
  const own = new RuleLimit(plugin, name ?? groupId ?? 'fastify', undefined, warn)
  if (own.isNameTaken && name === undefined && groupId === undefined) {
    const what = 'the plugin is registered twice on one store, and has no name: both share what is used'
    warn(new SetupError('ERR_TIDEGATE_SHARED_NAME', what, "write a name for each, such as name: 'admin'"))
  }
  const made: { limit: RuleLimit; said: RouteRateLimit }[] = [{ limit: own, said: plugin }]
  return {
    own,
    of: (said, name) => {
      if ('route' in said) {
        const hint = "write max and timeWindow, or register the plugin with policy: 'limits.toml'"
        throw new SetupError('ERR_TIDEGATE_ROUTE_CONFIG', `${name} names a route, and the plugin has no policy`, hint)
      }
      const { name: ownName, groupId, ...route } = checked(given(said), 'route')
      const called = groupId ?? ownName ?? ruleName(name)
      // A GET and its HEAD say the same, and so do routes that share an object: those have names of their own.
      const same = made.find((one) => one.said === said && one.limit.name === called)
      if (same !== undefined) return same.limit
      const limit = new RuleLimit({ ...plugin, ...route }, called, own.policy, warn)
      const other = made.find((one) => one.limit.name === limit.name)
      if (other !== undefined && other.limit.budget !== limit.budget) {
        limit.close()
        const what = `two rules are named ${limit.name}, of ${other.limit.budget} and of ${limit.budget}`
        const hint = 'write the same in all routes of one groupId, or another name'
        throw new SetupError('ERR_TIDEGATE_GROUP', what, hint)
      }
      made.push({ limit, said })
      return limit
    },
    close: () => made.reverse().forEach(({ limit }) => limit.close()),
  }
}
