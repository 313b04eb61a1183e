import type { ExecutionContext, OnApplicationShutdown, OnModuleInit, Type } from '@nestjs/common'
import { Logger } from '@nestjs/common'
import { MetadataScanner, type ModulesContainer } from '@nestjs/core'

import type { Rule } from '../index.js'
import { type Call, type Judged, OneRule, Routes, type RuleBasics } from '../judge.js'
import { checkLimit, given, MOST, nameOf, nearest, SetupError } from '../setup.js'
import { RATE_LIMIT, SKIP_RATE_LIMIT, type RateLimitSetting } from './decorators.js'
import { type Exchange, pathOf, type PlatformRequest, rawOf } from './exchange.js'
import {
  checkOptions,
  checkSetting,
  isRoutes,
  type Kind,
  type RoutesOptions,
  type RulesOptions,
  type TidegateOptions,
} from './options.js'

/** What judges the requests of a handler. */
export interface Limit {
  judge(exchange: Exchange, context: ExecutionContext): Promise<Judged>
}

/** A handler: a method of a controller. */
type Handler = (...args: never[]) => unknown

/** Where a limit was said, and of whom. */
interface Place {
  readonly setting: RateLimitSetting
  readonly name: string
  /** The class or the method that has it: two of them may not have one name by chance. */
  readonly owner: object
}

/** The limits of an application: those of its handlers are made and looked at when it starts. */
export class Tidegate implements OnModuleInit, OnApplicationShutdown {
  private readonly options: TidegateOptions
  private readonly makes: Limits
  private readonly limits = new Map<object, Map<object, Limit | null>>()

  /** @throws SetupError or TidegateError for options that cannot work */
  constructor(
    options: TidegateOptions,
    private readonly modules: ModulesContainer,
  ) {
    this.options = given(options)
    checkOptions(this.options)
    this.makes = isRoutes(this.options) ? new RoutesLimits(this.options) : new RulesLimits(this.options)
  }

  /** Requests that are not limited, whatever their handlers say. */
  get skip(): TidegateOptions['skip'] {
    return this.options.skip
  }

  onModuleInit(): void {
    const scanner = new MetadataScanner()
    for (const module of this.modules.values()) {
      for (const { metatype } of module.controllers.values()) {
        if (typeof metatype !== 'function') continue
        const prototype = metatype.prototype as Record<string, Handler>
        for (const name of scanner.getAllMethodNames(prototype)) {
          this.limitOf(metatype as Type<unknown>, prototype[name]!, name)
        }
      }
    }
  }

  /**
   * The limit of a handler; null if it has none.
   *
   * @throws SetupError or TidegateError for what its decorators say
   */
  limitOf(controller: Type<unknown>, handler: Handler, name: string = handler.name): Limit | null {
    const of = this.limits.get(controller) ?? new Map<object, Limit | null>()
    this.limits.set(controller, of)
    const known = of.get(handler)
    if (known !== undefined) return known
    const limit = this.make(controller, handler, name)
    of.set(handler, limit)
    return limit
  }

  private make(controller: Type<unknown>, handler: Handler, name: string): Limit | null {
    const skips = said<boolean>(SKIP_RATE_LIMIT, handler) ?? said<boolean>(SKIP_RATE_LIMIT, controller)
    if (skips === true) return null
    const own = said<RateLimitSetting>(RATE_LIMIT, handler)
    if (own !== undefined) return this.makes.of({ setting: own, name: `${controller.name}.${name}`, owner: handler })
    const all = said<RateLimitSetting>(RATE_LIMIT, controller)
    if (all !== undefined) return this.makes.of({ setting: all, name: controller.name, owner: controller })
    return this.makes.ofAll
  }

  /** After the server has ended: whatever is under way is judged. */
  onApplicationShutdown(): void {
    this.makes.close()
  }
}

function warn(error: SetupError): void {
  new Logger('Tidegate').warn(error.message)
}

function said<T>(key: string, target: object): T | undefined {
  return Reflect.getMetadata(key, target) as T | undefined
}

/** What makes the limits of handlers. */
interface Limits {
  /** That of handlers that say nothing. */
  readonly ofAll: Limit | null
  of(place: Place): Limit
  close(): void
}

/** By the routes of a document. */
class RoutesLimits implements Limits {
  readonly ofAll: Limit
  private readonly routes: Routes<PlatformRequest>

  constructor({ policy, user, values, answers }: RoutesOptions) {
    this.routes = new Routes<PlatformRequest>(policy, { user, values, answers }, warn)
    this.ofAll = {
      judge: (exchange) => {
        const { request } = exchange
        return this.routes.byPath(request.method, pathOf(exchange), rawOf(exchange), request)
      },
    }
  }

  of({ setting, name }: Place): Limit {
    const kind = checkSetting(setting, name)
    if (!('route' in kind)) {
      const what = `${name} has a limit of its own, and the module has a policy`
      const hint = "write @RateLimit({ route: 'name' }) of one of its routes, or the rule into the document"
      throw new SetupError('ERR_TIDEGATE_SETTING', what, hint)
    }
    const { route } = kind
    this.routes.policy.named('GET', route)
    return {
      judge: (exchange) => this.routes.byName(exchange.request.method, route, rawOf(exchange), exchange.request),
    }
  }

  close(): void {
    this.routes.close()
  }
}

/** A rule, and what it was made of. */
interface Made {
  readonly rule: OneRule
  readonly owner: object | null
  readonly limits: string
}

/** By rules that decorators say, all on one store. */
class RulesLimits implements Limits {
  readonly ofAll: Limit | null
  private readonly made: Made[] = []

  constructor(private readonly options: RulesOptions) {
    const { default: setting } = options
    this.ofAll = setting === undefined ? null : this.of({ setting, name: 'default', owner: this })
  }

  of({ setting, name, owner }: Place): Limit {
    const kind = checkSetting(setting, name)
    if ('route' in kind) {
      const what = `${name} names a route, and the module has no policy`
      throw new SetupError('ERR_TIDEGATE_SETTING', what, "write forRoot({ policy: 'limits.toml' }), or a limit")
    }
    const rule = this.ruleOf(kind, name, owner)
    return { judge: (exchange, context) => judge(kind, kind.key ?? this.options.key, rule, exchange, context) }
  }

  private ruleOf(kind: Exclude<Kind, { route: string }>, name: string, owner: object): OneRule {
    const isNamed = 'rule' in kind || kind.name !== undefined
    const called = 'rule' in kind ? kind.rule : (kind.name ?? nameOf(name))
    const { cost = 1, refundStatus, key = this.options.key } = kind
    const { headers, ipv6Subnet = 64 } = this.options
    const limits = this.limitsOf(kind)
    this.compare(called, JSON.stringify(limits), isNamed ? null : owner)
    const rule = new OneRule(
      {
        name: called,
        isKeyed: key !== undefined,
        isLimitTold: 'limit' in kind && typeof kind.limit === 'function',
        cost: typeof cost === 'number' ? cost : 'told',
        subnet: ipv6Subnet,
        fields: headers === undefined ? {} : { headers },
        refundStatus,
        ...limits,
      },
      this.basicsOf(kind),
      warn,
    )
    this.made.push({ rule, owner: isNamed ? null : owner, limits: JSON.stringify(limits) })
    return rule
  }

  private limitsOf(kind: Exclude<Kind, { route: string }>): { limit: number; window: number | string; rule?: Rule } {
    if ('limit' in kind) return { limit: typeof kind.limit === 'number' ? kind.limit : MOST, window: kind.ttl }
    const { rules = {} } = this.options
    if ('rule' in kind && !Object.hasOwn(rules, kind.rule)) {
      const hint = nearest(kind.rule, Object.keys(rules))
      throw new SetupError('ERR_TIDEGATE_SETTING', `forRoot has no rule ${JSON.stringify(kind.rule)}`, hint)
    }
    const rule = 'rule' in kind ? rules[kind.rule]! : kind.limits
    return { limit: MOST, window: 1, rule: withOnError(rule, this.options.onError) }
  }

  /** The first rule has the store, and the others are beside it. */
  private basicsOf(kind: Exclude<Kind, { route: string }>): RuleBasics {
    const { onError, url, prefix, deadline, clock, policy } = this.options
    const own = 'limit' in kind ? { algorithm: kind.algorithm, onError: kind.onError ?? onError } : {}
    return { ...own, url, prefix, deadline, clock, policy: policy ?? this.made[0]?.rule.policy }
  }

  /** @throws SetupError where two are one bucket that should not be */
  private compare(name: string, limits: string, owner: object | null): void {
    const other = this.made.find(({ rule }) => rule.name === name)
    if (other === undefined || (other.owner === owner && other.limits === limits)) return
    const why = other.limits === limits ? 'of two classes or handlers' : `with different limits`
    const hint = 'write name in one of them: a name is a bucket'
    throw new SetupError('ERR_TIDEGATE_SHARED_NAME', `two rules are named ${name}, ${why}`, hint)
  }

  close(): void {
    for (const { rule } of this.made.reverse()) rule.close()
  }
}

function withOnError(rule: Rule, onError: RuleBasics['onError']): Rule {
  if (onError === undefined) return rule
  if (typeof rule === 'object' && 'limits' in rule) return { on_error: onError, ...rule }
  return { limits: rule, on_error: onError }
}

async function judge(
  kind: Exclude<Kind, { route: string }>,
  key: RulesOptions['key'],
  rule: OneRule,
  exchange: Exchange,
  context: ExecutionContext,
): Promise<Judged> {
  const { request } = exchange
  const call: Call = { ip: request.ip }
  if (key !== undefined) call.key = await key(request, context)
  if ('limit' in kind && typeof kind.limit === 'function') {
    call.limit = await kind.limit(request, context)
    checkLimit('what limit has given', call.limit)
  }
  if (typeof kind.cost === 'function') call.cost = await kind.cost(request, context)
  return rule.judge(call, rawOf(exchange))
}
