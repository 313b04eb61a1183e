/** Rate limits for Express 4 and 5. */

import type { RequestHandler } from 'express'

import { Checks } from './express/checks.js'
import type { Limited, RateLimitInfo } from './express/info.js'
import {
  known,
  OF_ROUTES,
  OF_RULE,
  type RateLimitOptions,
  type RoutesOptions,
  settings,
  typed,
} from './express/options.js'
import { RoutesLimit } from './express/routes.js'
import { RuleLimit } from './express/rule.js'
import { given } from './setup.js'

export { ipKeyGenerator } from './express/address.js'
export { type Check, type Logger, SetupError, type Validate } from './express/checks.js'
export { admissionOf, type RateLimitInfo } from './express/info.js'
export type { Handler, Of, RateLimitOptions, RoutesOptions, Settings } from './express/options.js'
export type { Ask, Identity } from './http.js'

declare global {
  namespace Express {
    interface Request {
      /** How the limit of this request stands, by the last limiter that it has passed. */
      rateLimit?: RateLimitInfo
    }
  }
}

/** A limiter as Express takes it. */
export interface RoutesLimiter extends RequestHandler {
  /** Closes what the limiter has opened; it must not be used any more. Twice does nothing. */
  close(): void
}

/** A limiter of one rule. */
export interface RateLimiter extends RoutesLimiter {
  /** Forgets what a key has used, so that it begins anew. */
  resetKey(key: string): Promise<void>
  /** What a key has used, and when that is gone; undefined if it has used nothing. */
  getKey(key: string): Promise<{ totalHits: number; resetTime: Date | undefined } | undefined>
}

/**
 * Limits requests.
 *
 * With `policy` alone the routes of its document decide. Otherwise the limiter has one rule of its own, with the options
 * of express-rate-limit.
 *
 * ```js
 * app.use(rateLimit({ windowMs: 15 * 60 * 1000, limit: 100 }))
 * app.use(rateLimit({ policy: 'limits.toml' }))
 * ```
 *
 * @throws SetupError for options that cannot work; TidegateError for what a document cannot say, such as a window of
 *   400 days. A store that cannot be reached is none: it is connected to in the background.
 */
export function rateLimit(options: RoutesOptions): RoutesLimiter
export function rateLimit(options?: RateLimitOptions): RateLimiter
export function rateLimit(options: RateLimitOptions | RoutesOptions = {}): RoutesLimiter {
  const all = given(options)
  const checks = new Checks(all.validate ?? true, all.logger ?? console)
  checks.creation()
  return isRoutes(all) ? byRoutes(all, checks) : byRule(all, checks)
}

/** Whether nothing is said that makes a rule: then the document has all of them. */
function isRoutes(options: RateLimitOptions | RoutesOptions): options is RoutesOptions {
  if (options.policy === undefined) return false
  return !('windowMs' in options || 'limit' in options || 'max' in options)
}

function byRoutes(options: RoutesOptions, checks: Checks): RoutesLimiter {
  known(options, OF_ROUTES, 'of a limiter by the routes of a policy', checks)
  typed(options)
  const limit = new RoutesLimit(options, checks)
  const middleware: RequestHandler = (request, response, next) => limit.handle(request as Limited, response, next)
  return Object.assign(middleware, { close: () => limit.close() })
}

function byRule(options: RateLimitOptions, checks: Checks): RateLimiter {
  known(options, OF_RULE, 'of a limiter', checks)
  typed(options)
  look(options, checks)
  const answers = ['handler', 'message', 'statusCode', 'retryAfter'].some((name) => name in options)
  const limit = new RuleLimit(settings(options), checks, answers)
  if (limit.isNameTaken && options.name === undefined && options.identifier === undefined) {
    const what =
      'another limiter on this store has the same limit and window, and no name either: they share what is used'
    checks.report('sharedName', 'ERR_TIDEGATE_SHARED_NAME', what, "write a name for each, such as name: 'login'")
  }
  const middleware: RequestHandler = (request, response, next) => limit.handle(request as Limited, response, next)
  return Object.assign(middleware, {
    close: () => limit.close(),
    resetKey: async (key: string) => limit.resetKey(key),
    getKey: async (key: string) => limit.getKey(key),
  })
}

/** What can be seen of the options before any request. */
function look({ keyGenerator, ipv6Subnet }: RateLimitOptions, checks: Checks): void {
  if (keyGenerator !== undefined) {
    const source = String(keyGenerator)
    if (/\breq(?:uest)?\.ip\b/.test(source) && !source.includes('ipKeyGenerator')) {
      const what = 'keyGenerator uses req.ip as it is, so a client with a network of IPv6 addresses has no limit'
      checks.report('keyGeneratorIpFallback', 'ERR_TIDEGATE_KEY_GEN_IPV6', what, 'write ipKeyGenerator(req.ip)')
    }
    if (ipv6Subnet !== undefined) {
      const what = 'ipv6Subnet does nothing beside keyGenerator'
      const hint = 'write it in keyGenerator: ipKeyGenerator(req.ip, subnet)'
      checks.report('ipv6SubnetOrKeyGenerator', 'ERR_TIDEGATE_IPV6SUBNET_OR_KEYGENERATOR', what, hint)
    }
  }
  if (typeof ipv6Subnet === 'number' && ipv6Subnet > 64) {
    const what = `ipv6Subnet is ${ipv6Subnet}, and a client has a /64 at least: it can choose among many addresses`
    checks.report('ipv6Subnet', 'ERR_TIDEGATE_IPV6_SUBNET', what, 'write 48 to 64')
  }
}
