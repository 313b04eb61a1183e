import { invalid } from '../errors.js'
import type { Algorithm } from '../index.js'
import { hits, judgeAlgorithm, judged, limits, Source, waitMs, wholeMs } from './source.js'
import type { SourceOptions } from './source.js'

/** Options of {@link fastifyStore}. */
export type FastifyStoreOptions = SourceOptions & {
  /**
   * How requests are counted, with the plugin's own `max` and `timeWindow`; a refusal then charges nothing. Unless
   * given, the store counts as the plugin's own stores do: windows begin with the first request, refused ones count.
   */
  algorithm?: Algorithm | undefined
}

/** What the store reads of the plugin's options, and of a route's. */
export interface FastifyRoute {
  groupId?: string
  max?: unknown
  ban?: number
  continueExceeding?: boolean
  exponentialBackoff?: boolean
  routeInfo?: { method?: string | readonly string[]; url?: string; constraints?: object }
}

/** Called once: with an error, or with the hits and the milliseconds that the plugin tells the client. */
export type FastifyCallback = (error: Error | null, result?: { current: number; ttl: number }) => void

/** One scope of the plugin's: all routes without options of their own, one route, or one group. */
export interface FastifyStore {
  incr(key: string, callback: FastifyCallback, timeWindow: number, max: number): void
  read(key: string, callback: FastifyCallback, timeWindow: number, max: number): void
  child(routeOptions: object): FastifyStore
}

/** What the plugin's `store` takes. */
export interface FastifyStoreClass {
  new (options: object): FastifyStore
  /** Ends the connections of all its stores; a limiter of the application's stays open. */
  close(): void
}

const NAME = 'fastifyStore'

/**
 * A class for `@fastify/rate-limit`'s `store` option. Its instances share one state and one set of connections.
 *
 * @example
 * ```ts
 * const store = fastifyStore({ url: 'redis://127.0.0.1:6379' })
 * await app.register(rateLimit, { max: 100, timeWindow: '1 minute', store })
 * app.addHook('onClose', () => store.close())
 * ```
 * @throws TidegateError of options that cannot be meant.
 */
export function fastifyStore(options: FastifyStoreOptions = {}): FastifyStoreClass {
  const source = new Source(NAME, 'fastify', options, ['algorithm'])
  const { algorithm } = options
  if (algorithm !== undefined) judgeAlgorithm(NAME, algorithm)

  return class TidegateFastifyStore extends ScopedStore {
    constructor(plugin: object) {
      super(source, algorithm, new Scopes(), 'all routes', plugin)
    }

    static close(): void {
      source.close()
    }
  }
}

class ScopedStore implements FastifyStore {
  readonly #source: Source
  readonly #algorithm: Algorithm | undefined
  readonly #scopes: Scopes
  readonly #scope: string

  /** @throws TidegateError of options of the plugin's that this store does not have. */
  constructor(source: Source, algorithm: Algorithm | undefined, scopes: Scopes, scope: string, route: FastifyRoute) {
    judgeRoute(route, algorithm)
    this.#source = source
    this.#algorithm = algorithm
    this.#scopes = scopes
    this.#scope = scope
  }

  incr(key: string, callback: FastifyCallback, timeWindow: number, max: number): void {
    answer(this.#incr(key, timeWindow, max), callback)
  }

  read(key: string, callback: FastifyCallback, timeWindow: number, max: number): void {
    answer(this.#read(key, timeWindow, max), callback)
  }

  child(routeOptions: object): FastifyStore {
    const route: FastifyRoute = routeOptions
    return new ScopedStore(this.#source, this.#algorithm, this.#scopes, this.#scopes.of(route), route)
  }

  async #incr(key: string, timeWindow: number, max: number) {
    const { limiter, rule } = this.#source
    const stored = this.#source.parts(this.#scope, key)
    const windowMs = wholeMs(NAME, timeWindow)
    if (!this.#algorithm) {
      const { total, leftMs } = await limiter.count(rule, stored, windowMs, 1)
      return { current: total, ttl: leftMs }
    }
    const decision = judged(await limiter.check(rule, stored, { limits: limits(NAME, max, windowMs, this.#algorithm) }))
    return { current: hits(max, decision), ttl: waitMs(decision, windowMs) }
  }

  async #read(key: string, timeWindow: number, max: number) {
    const { limiter, rule } = this.#source
    const stored = this.#source.parts(this.#scope, key)
    const windowMs = wholeMs(NAME, timeWindow)
    if (!this.#algorithm) {
      const { total, leftMs } = await limiter.count(rule, stored, windowMs)
      return { current: total, ttl: leftMs }
    }
    const seen = judged(await limiter.peek(rule, stored, { limits: limits(NAME, max, windowMs, this.#algorithm) }))
    return { current: Math.max(0, Math.floor(max) - seen.remaining), ttl: waitMs(seen, windowMs) }
  }
}

/** Names of the scopes of one registration, the same in every process that makes them in the same order. */
class Scopes {
  readonly #made = new Map<string, number>()

  of({ groupId, routeInfo = {}, max }: FastifyRoute): string {
    if (groupId) return `group ${groupId}`
    const { method, url, constraints } = routeInfo
    if (url !== undefined) {
      const methods = [method ?? []].flat().join(',')
      const only = Object.entries(constraints ?? {}).map(([name, value]) => ` ${name} ${String(value)}`)
      return `route ${methods} ${url}${only.join('')}`
    }
    // Made by `rateLimit()` or `createRateLimit()`, and so without a name: those with one `max` are numbered.
    const alike = `limiter ${typeof max === 'number' ? max : 'by request'}`
    const number = (this.#made.get(alike) ?? 0) + 1
    this.#made.set(alike, number)
    return `${alike} #${number}`
  }
}

function judgeRoute(route: FastifyRoute, algorithm: Algorithm | undefined): void {
  for (const name of ['continueExceeding', 'exponentialBackoff'] as const) {
    if (route[name]) throw invalid(`${NAME}: ${name} is not there, a window never moves; write ban, or leave it out`)
  }
  if (algorithm && route.ban !== undefined && route.ban > 0) {
    throw invalid(`${NAME}: ban counts refusals, which ${algorithm} does not; leave algorithm out, or write ban: 0`)
  }
}

function answer(result: Promise<{ current: number; ttl: number }>, callback: FastifyCallback): void {
  result.then(
    (found) => callback(null, found),
    (error: Error) => callback(error),
  )
}
