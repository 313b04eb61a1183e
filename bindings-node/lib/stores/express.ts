import { invalid } from '../errors.js'
import type { Algorithm } from '../index.js'
import { Charges } from './charges.js'
import { hits, judgeAlgorithm, judged, limits, Source, waitMs, wholeMs } from './source.js'
import type { SourceOptions } from './source.js'

/** Options of {@link expressStore}. */
export type ExpressStoreOptions = SourceOptions & {
  /** The window in milliseconds. The host tells its own in `init`; only who calls the store without one needs this. */
  windowMs?: number | undefined
  /**
   * The host's `limit`, and the same number as there. With it the store decides by `algorithm` instead of counting:
   * a refusal then charges nothing.
   */
  limit?: number | undefined
  /** How a store with a `limit` decides: `sliding_window` unless given. */
  algorithm?: Algorithm | undefined
  /** Units that a `token_bucket` admits at once; `limit` unless given. */
  burst?: number | undefined
}

/** What the store reads of the host's options. */
export interface ExpressInit {
  windowMs: number
  limit?: unknown
  skipFailedRequests?: boolean
  skipSuccessfulRequests?: boolean
}

/** What hosts are told: `totalHits` is at least 1 of an increment, `resetTime` is by this process's clock. */
export interface ExpressHits {
  totalHits: number
  resetTime: Date
}

/** Where an increment went: the start of its window, or its receipt ('' of a refusal). */
type Taken = number | string

const NAME = 'expressStore'

/** A `Store` for express-rate-limit and hono-rate-limiter. Make one for each of their limiters. */
export class ExpressStore {
  /** By which express-rate-limit tells counts of one request apart. */
  readonly prefix: string
  /** `false`: another instance may count the same keys. */
  readonly localKeys = false
  readonly #source: Source
  readonly #charges = new Charges<Taken>()
  readonly #limit: number | undefined
  readonly #algorithm: Algorithm
  readonly #burst: number | undefined
  #windowMs: number | undefined
  #givesBack = true
  #fault: Error | undefined

  /** @throws TidegateError of options that cannot be meant. */
  constructor(options: ExpressStoreOptions = {}) {
    this.#source = new Source(NAME, 'express', options, ['windowMs', 'limit', 'algorithm', 'burst'])
    this.prefix = this.#source.prefix
    const { limit, algorithm = 'sliding_window', burst, windowMs } = options
    if (limit === undefined && (options.algorithm !== undefined || burst !== undefined)) {
      throw invalid(`${NAME}: an algorithm needs the limit; write limit: the number that the host has`)
    }
    judgeAlgorithm(NAME, algorithm)
    if (limit !== undefined) limits(NAME, limit, windowMs ?? 1, algorithm)
    if (windowMs !== undefined) wholeMs(NAME, windowMs)
    this.#limit = limit
    this.#algorithm = algorithm
    this.#burst = burst
    this.#windowMs = windowMs
  }

  /**
   * The host's options. Hosts log what this throws and go on, so the calls that follow reject with it too.
   *
   * @throws TidegateError of a window or limit that is not this store's.
   */
  init(options: ExpressInit): void {
    const fault = this.#judge(options)
    if (fault) {
      this.#fault ??= fault
      throw fault
    }
    this.#windowMs = options.windowMs
    this.#givesBack = !(options.skipFailedRequests === false && options.skipSuccessfulRequests === false)
  }

  /**
   * Counts a request, or decides on it.
   *
   * @returns what the host compares with its limit: more than that is refused.
   * @throws TidegateError if the store fails, by the deadline.
   */
  async increment(key: string): Promise<ExpressHits> {
    const windowMs = this.#window()
    // Before the first await, so that the host's course of events has it.
    const charge = this.#givesBack ? this.#charges.begin(key) : undefined
    const { limiter, rule } = this.#source
    const stored = this.#source.key(key)
    if (this.#limit === undefined) {
      const counted = await limiter.count(rule, stored, windowMs, 1)
      if (charge) charge.taken = counted.start
      return found(counted.total, counted.leftMs)
    }
    const decision = judged(await limiter.check(rule, stored, { limits: this.#limits(windowMs) }))
    if (charge) charge.taken = decision.receipt
    return found(hits(this.#limit, decision), waitMs(decision, windowMs))
  }

  /**
   * Gives back what this request's increment took: never below zero, and nothing from a later window.
   *
   * Outside of a request that was counted, a counting store takes one from the current window.
   *
   * @throws TidegateError if the store fails, or a store with a limit finds no increment of this request.
   */
  async decrement(key: string): Promise<void> {
    const windowMs = this.#window()
    const { limiter, rule } = this.#source
    const taken = this.#charges.end(key)
    if (this.#limit !== undefined) {
      if (taken === undefined) {
        const followed = 'requests are followed with skipFailedRequests or skipSuccessfulRequests'
        throw invalid(`${NAME}: there is no increment of this request to give back; ${followed}`)
      }
      if (taken !== '') await limiter.refund(String(taken))
      return
    }
    const stored = this.#source.key(key)
    const start = taken ?? (await limiter.count(rule, stored, windowMs)).start
    await limiter.takeBack(rule, stored, windowMs, 1, Number(start))
  }

  /**
   * How a key stands: `undefined` where nothing is known of it. Writes nothing.
   *
   * @throws TidegateError if the store fails.
   */
  async get(key: string): Promise<ExpressHits | undefined> {
    const windowMs = this.#window()
    const { limiter, rule } = this.#source
    const stored = this.#source.key(key)
    if (this.#limit === undefined) {
      const { total, leftMs, start } = await limiter.count(rule, stored, windowMs)
      return start === 0 ? undefined : found(total, leftMs)
    }
    const seen = judged(await limiter.peek(rule, stored, { limits: this.#limits(windowMs) }))
    if (!seen.resetAfterMs) return undefined
    return found(Math.max(0, this.#limit - seen.remaining), waitMs(seen, windowMs))
  }

  /**
   * Forgets a key.
   *
   * @throws TidegateError if the store fails.
   */
  async resetKey(key: string): Promise<void> {
    const all = limits(NAME, this.#limit ?? 1, this.#window(), this.#algorithm)
    await this.#source.limiter.reset(this.#source.rule, this.#source.key(key), { limits: all })
  }

  /**
   * Forgets every key of a store that has its state in memory and to itself.
   *
   * @throws TidegateError of any other: keys on a server are not searched for.
   */
  async resetAll(): Promise<void> {
    this.#source.forget()
  }

  /** Ends the store's own connections; a limiter of the application's stays open. */
  shutdown(): void {
    this.#source.close()
  }

  #limits(windowMs: number): string {
    return limits(NAME, this.#limit!, windowMs, this.#algorithm, this.#burst)
  }

  #window(): number {
    if (this.#fault) throw this.#fault
    if (this.#windowMs === undefined) {
      throw invalid(`${NAME}: the window is not known yet; give the store to a limiter first, or write windowMs`)
    }
    return this.#windowMs
  }

  #judge(options: ExpressInit): Error | undefined {
    if (this.#windowMs !== undefined && options.windowMs !== this.#windowMs) {
      return invalid(
        `${NAME}: windowMs is ${options.windowMs} here and ${this.#windowMs} before; make a store for each limiter`,
      )
    }
    if (this.#limit !== undefined && typeof options.limit === 'number' && options.limit !== this.#limit) {
      return invalid(`${NAME}: limit is ${this.#limit} in the store and ${options.limit} in the host; write one number`)
    }
    try {
      wholeMs(NAME, options.windowMs)
    } catch (error) {
      return error as Error
    }
    return undefined
  }
}

/**
 * A store for express-rate-limit's and hono-rate-limiter's `store` option.
 *
 * It counts as those packages do: windows begin with a client's first request, and refused requests count. With a
 * `limit` it decides by one of Tidegate's algorithms instead.
 *
 * @example
 * ```ts
 * app.use(rateLimit({ windowMs: 60_000, limit: 100, store: expressStore({ url: 'redis://127.0.0.1:6379' }) }))
 * ```
 * @throws TidegateError of options that cannot be meant.
 */
export function expressStore(options: ExpressStoreOptions = {}): ExpressStore {
  return new ExpressStore(options)
}

function found(totalHits: number, leftMs: number): ExpressHits {
  return { totalHits, resetTime: new Date(Date.now() + leftMs) }
}
