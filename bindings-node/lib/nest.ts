/** Rate limits for Nest, on Express and on Fastify. */

import {
  type ArgumentsHost,
  type CanActivate,
  Catch,
  type DynamicModule,
  type ExceptionFilter,
  type ExecutionContext,
  HttpException,
  Inject,
  Injectable,
  type InjectionToken,
  Module,
  type ModuleMetadata,
  type OptionalFactoryDependency,
  type Provider,
} from '@nestjs/common'
import { APP_FILTER, ModulesContainer } from '@nestjs/core'

import { setFields } from './http.js'
import type { Admission } from './index.js'
import { admissionOf as lastOf } from './info.js'
import { type Exchange, fieldsOf, rawOf, rawResponseOf, refuse } from './nest/exchange.js'
import type { TidegateOptions } from './nest/options.js'
import { Tidegate } from './nest/tidegate.js'
import { given } from './setup.js'

export type { Algorithm } from './index.js'
export type { Identity } from './http.js'
export type { OnError } from './judge.js'
export {
  type Counting,
  type NamedRoute,
  type NamedRule,
  type OwnLimit,
  type OwnLimits,
  RateLimit,
  type RateLimitSetting,
  SkipRateLimit,
} from './nest/decorators.js'
export type { Exchange, Of, PlatformRequest } from './nest/exchange.js'
export type { AskOf, RoutesOptions, RulesOptions, TidegateOptions } from './nest/options.js'
export { SetupError } from './setup.js'
export { Tidegate }

/** What a request's limit has decided, if it may not pass. Its response is the core's body, as an object if it is JSON. */
export class RateLimitException extends HttpException {
  constructor(readonly admission: Admission) {
    super(bodyOf(admission), admission.status ?? 429)
  }
}

function bodyOf({ body, rawHeaders }: Admission): string | Record<string, unknown> {
  const at = rawHeaders.findIndex((name, index) => index % 2 === 0 && name.toLowerCase() === 'content-type')
  const isJson = /\bjson\b/.test(rawHeaders[at + 1] ?? '')
  return isJson ? (JSON.parse(body ?? '{}') as Record<string, unknown>) : (body ?? '')
}

/** What the last limiter that a request passed has decided; undefined where there was none. */
export function admissionOf(request: object): Admission | undefined {
  return lastOf('raw' in request && typeof request.raw === 'object' ? request.raw! : request)
}

/**
 * Judges requests: for all handlers as `{ provide: APP_GUARD, useClass: RateLimitGuard }`, for some with
 * `@UseGuards(RateLimitGuard)`.
 */
export class RateLimitGuard implements CanActivate {
  constructor(protected readonly tidegate: Tidegate) {}

  async canActivate(context: ExecutionContext): Promise<boolean> {
    const exchange = this.exchange(context)
    const limit = exchange && this.tidegate.limitOf(context.getClass(), context.getHandler() as () => unknown)
    if (exchange === null || limit === null) return true
    const { skip } = this.tidegate
    if (skip !== undefined && (await skip(exchange.request, context))) return true
    const before = lastOf(rawOf(exchange))
    const { admission } = await limit.judge(exchange, context)
    setFields(fieldsOf(exchange), admission, before, false)
    if (!admission.allowed) throw new RateLimitException(admission)
    const response = rawResponseOf(exchange)
    // A client that goes away before it has its answer has had the work done: only a response settles.
    response.once('finish', () => void admission.settle(response.statusCode))
    return true
  }

  /**
   * The request of a context and its response; null is not limited. Here it is those of HTTP: a guard of GraphQL extends
   * this one, and returns what is in its own context.
   */
  protected exchange(context: ExecutionContext): Exchange | null {
    if (context.getType() !== 'http') return null
    const http = context.switchToHttp()
    return { request: http.getRequest(), response: http.getResponse() }
  }
}
Injectable()(RateLimitGuard)
Inject(Tidegate)(RateLimitGuard, undefined, 0)

/** Answers a `RateLimitException` with the core's own body and its type: Nest's filter would make JSON of text. */
export class RateLimitFilter implements ExceptionFilter<RateLimitException> {
  catch(exception: RateLimitException, host: ArgumentsHost): unknown {
    if (host.getType() !== 'http') return exception
    refuse(host.switchToHttp().getResponse(), exception.admission)
    return undefined
  }
}
Catch(RateLimitException)(RateLimitFilter)

/** What is said where the module is imported, and not by its options. */
export interface ModuleExtras {
  /** Whether all modules have the guard. @defaultValue `true` */
  isGlobal?: boolean | undefined
  /** `false` leaves refusals to the application's own filters, and to Nest's. @defaultValue `true` */
  filter?: boolean | undefined
}

/** Options that other providers make. */
export interface AsyncOptions extends ModuleExtras, Pick<ModuleMetadata, 'imports'> {
  useFactory: AsyncFactory
  inject?: (InjectionToken | OptionalFactoryDependency)[] | undefined
}

/** What is injected are its arguments, whatever their types are. */
export type AsyncFactory = {
  make(...injected: unknown[]): TidegateOptions | Promise<TidegateOptions>
}['make']

const OPTIONS = Symbol('tidegate options')

/** The module: `TidegateModule.forRoot({ default: '100/m' })`, or `TidegateModule.forRoot({ policy: 'limits.toml' })`. */
export class TidegateModule {
  static forRoot(options: TidegateOptions & ModuleExtras): DynamicModule {
    const { isGlobal, filter, ...rest } = options
    return moduleOf({ isGlobal, filter }, { provide: OPTIONS, useValue: rest })
  }

  static forRootAsync(options: AsyncOptions): DynamicModule {
    const { useFactory, inject = [], imports = [], ...extras } = options
    return { ...moduleOf(extras, { provide: OPTIONS, useFactory, inject }), imports }
  }
}
Module({})(TidegateModule)

function moduleOf({ isGlobal = true, filter = true }: ModuleExtras, options: Provider): DynamicModule {
  const tidegate: Provider = {
    provide: Tidegate,
    useFactory: (options: TidegateOptions, modules: ModulesContainer) => new Tidegate(given(options), modules),
    inject: [OPTIONS, ModulesContainer],
  }
  const providers = [options, tidegate, RateLimitGuard]
  if (filter) providers.push({ provide: APP_FILTER, useClass: RateLimitFilter })
  return { module: TidegateModule, global: isGlobal, providers, exports: [Tidegate, RateLimitGuard] }
}
