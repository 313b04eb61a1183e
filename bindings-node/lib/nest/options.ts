import type { Identity } from '../http.js'
import type { Document, Policy, Rule } from '../index.js'
import { BASICS, type RuleBasics } from '../judge.js'
import { checkFunction, checkLimit, checkWindow, nearest, refuseUnknown, SetupError } from '../setup.js'
import type { NamedRoute, NamedRule, OwnLimit, OwnLimits, RateLimitSetting } from './decorators.js'
import type { Of, PlatformRequest } from './exchange.js'

/** Something that the application is asked of a request; it may come by a promise. */
export type AskOf<T> = { of(request: PlatformRequest): T | PromiseLike<T> }['of']

/** Where limits are said by decorators. */
export interface RulesOptions extends Omit<RuleBasics, 'algorithm'> {
  /** Rules by name, for `@RateLimit({ rule: 'name' })`. */
  rules?: { readonly [name: string]: Rule } | undefined
  /** The limit of handlers that have no decorator, all of them together. @defaultValue none */
  default?: string | OwnLimit | OwnLimits | NamedRule | undefined
  /** Who is limited, where a decorator does not say. @defaultValue the client's address, `request.ip` */
  key?: Of<Identity> | undefined
  /** Requests that are not limited. */
  skip?: Of<boolean> | undefined
  /** Which fields responses have, as `http.headers` of a document. @defaultValue `['draft-10', 'x-ratelimit']` */
  headers?: readonly string[] | undefined
  /** How many bits of an IPv6 address are one client, 32 to 128. @defaultValue 64 */
  ipv6Subnet?: number | undefined
}

/** Where the routes of a document say them. */
export interface RoutesOptions {
  /** A policy, a document, or the path of one. */
  policy: Policy | Document | string
  /** Who the user is; asked only where a route needs it. */
  user?: AskOf<Identity> | undefined
  /** What the document calls `app:NAME`, by NAME. */
  values?: Readonly<Record<string, AskOf<Identity>>> | undefined
  /** The questions of `exempt.app`: who answers `true` is not limited. */
  answers?: Readonly<Record<string, AskOf<boolean>>> | undefined
  /** Requests that are not limited. */
  skip?: Of<boolean> | undefined
}

export type TidegateOptions = RulesOptions | RoutesOptions

const OF_ROUTES = ['policy', 'user', 'values', 'answers', 'skip']
const OF_RULES = [
  ...BASICS.filter((name) => name !== 'algorithm'),
  ...['rules', 'default', 'key', 'skip', 'headers', 'ipv6Subnet'],
]
const INSTEAD = {
  document: 'write policy',
  throttlers: "write default: { limit, ttl }, or rules: { name: '5/m' }",
  storage: "write url: 'redis://127.0.0.1:6379'; tidegate/stores has a storage for @nestjs/throttler itself",
  ttl: 'write default: { limit, ttl }',
  limit: 'write default: { limit, ttl }',
  getTracker: 'write key',
  skipIf: 'write skip',
  setHeaders: 'write headers: []',
  algorithm: 'write it where the limit is',
}

/** Whether nothing is said that makes a rule: then the document has all of them. */
export function isRoutes(options: TidegateOptions): options is RoutesOptions {
  return 'policy' in options && options.policy !== undefined && !('rules' in options || 'default' in options)
}

/** @throws SetupError */
export function checkOptions(options: TidegateOptions): void {
  if (isRoutes(options)) {
    const said = 'write it into the document, or rules too for limits by decorators'
    refuseUnknown(options, OF_ROUTES, { ...INSTEAD, ...Object.fromEntries(OF_RULES.map((name) => [name, said])) })
  } else {
    const said = 'write policy too: it is asked where the routes of a document say the limits'
    refuseUnknown(options, OF_RULES, { ...INSTEAD, user: said, values: said, answers: said })
    checkFunction('key', options.key)
  }
  checkFunction('skip', options.skip)
}

const COUNTING = ['key', 'cost', 'refundStatus']
const KINDS = {
  limit: ['limit', 'ttl', 'name', 'algorithm', 'onError', ...COUNTING],
  limits: ['limits', 'name', ...COUNTING],
  rule: ['rule', ...COUNTING],
  route: ['route'],
}

export type Kind = OwnLimit | OwnLimits | NamedRule | NamedRoute

/**
 * Looks at what a decorator says.
 *
 * @param where whose it is, for what goes wrong
 * @throws SetupError
 */
export function checkSetting(setting: RateLimitSetting, where: string): Kind {
  const said = typeof setting === 'string' ? { limits: setting } : setting
  const kinds = Object.keys(KINDS).filter((kind) => typeof said === 'object' && said !== null && kind in said)
  if (kinds.length !== 1) {
    const what = `the limit of ${where} says ${kinds.length === 0 ? 'none' : kinds.join(' and ')} of its kinds`
    const hint = "write '5/m', or one of { limit, ttl }, { limits }, { rule } and { route }"
    throw new SetupError('ERR_TIDEGATE_SETTING', what, hint)
  }
  const names = KINDS[kinds[0] as keyof typeof KINDS]
  const unknown = Object.keys(said).find((name) => !names.includes(name))
  if (unknown !== undefined) {
    const what = `${unknown} is no option of ${where}`
    throw new SetupError('ERR_TIDEGATE_UNKNOWN_OPTION', what, nearest(unknown, names))
  }
  if ('limit' in said) {
    if (typeof said.limit !== 'function') checkLimit(`limit of ${where}`, said.limit)
    checkWindow(`ttl of ${where}`, said.ttl)
  }
  if ('key' in said) checkFunction(`key of ${where}`, said.key)
  return said
}
