import { Batch, judge, type CheckOptions } from './batch.js'
import type { Decision } from './decision.js'
import { source, type LimiterOptions } from './document.js'
import { milliseconds, type Duration } from './duration.js'
import { calling, invalid, thrown, TidegateError } from './errors.js'
import { encoded, type Key } from './key.js'
import { heard, loop, type Counted, type LogEntry } from './loop.js'
import { Core, type Acquiring } from './native.js'
import type { Metrics } from './types.js'

/** What an acquire may be told beside its rule and key. */
export interface AcquireOptions {
  /** The units that it takes, from 1. */
  cost?: number | undefined
  /** Limits instead of the rule's own. */
  limits?: string | undefined
  /** How long the store may take for one look. */
  deadline?: Duration | undefined
  /** How long to wait for room: 10 s unless said. */
  timeout?: Duration | undefined
  /** Gives the wait up: the place in line is free, and the promise rejects with the signal's reason. */
  signal?: AbortSignal | undefined
}

const ACQUIRE: readonly (keyof AcquireOptions)[] = ['cost', 'limits', 'deadline', 'timeout', 'signal']
const OF_LIMITS = ['limits']
const TIMEOUT = 10_000
const READY = 5_000

/**
 * Decides whether somebody may pass a rule.
 *
 * ```js
 * const limiter = new Limiter({ rules: { login: '5/m' }, url: 'redis://127.0.0.1:6379' })
 * const decision = await limiter.check('login', 'alice')
 * if (!decision.allowed) console.log(`try again in ${decision.retryAfterMs} ms`)
 * ```
 *
 * A refusal never rejects, and neither does a store that fails: then `check`, `peek` and `acquire` answer by the deadline, as
 * the rule's `on_error` says. What does reject, with a {@link TidegateError}, is a call that cannot be meant.
 */
export class Limiter {
  readonly #core: Core
  readonly #batch: Batch

  /**
   * @throws TidegateError `invalid_document`, `invalid_rule` or `invalid_request` for what cannot be meant, with what to write
   * instead. No server is asked yet.
   */
  constructor(options: LimiterOptions) {
    this.#core = made.get(options) ?? heard(() => calling(() => new Core(...source(options), options.clock)))
    this.#batch = new Batch(this.#core)
  }

  /** Decides whether a request may pass, and charges it. Several rules are decided together: all are charged, or none. */
  check(rule: string | readonly string[], key: Key, options?: CheckOptions): Promise<Decision> {
    return this.#batch.add(false, rule, key, options)
  }

  /** The same as `check` with several rules. */
  checkAll(rules: readonly string[], key: Key, options?: CheckOptions): Promise<Decision> {
    return this.#batch.add(false, rules, key, options)
  }

  /**
   * Decides in memory, at once.
   * @throws TidegateError what `check` would reject with, and `invalid_request` where a server would have to be asked.
   */
  checkSync(rule: string | readonly string[], key: Key, options?: CheckOptions): Decision {
    return this.#batch.now(rule, key, options)
  }

  /** What `check` would decide, without charging. */
  peek(rule: string | readonly string[], key: Key, options?: CheckOptions): Promise<Decision> {
    return this.#batch.add(true, rule, key, options)
  }

  /**
   * Waits in line until the request may pass, at most `timeout` (10 s unless said): then the decision is a refusal. Those who
   * wait in this process for one rule and key are served in their order.
   */
  acquire(rule: string, key: Key, options?: AcquireOptions): Promise<Decision> {
    const { cost = 1, limits, deadline, timeout = TIMEOUT, signal } = options ?? {}
    if (signal?.aborted) return Promise.reject(signal.reason)
    let acquiring: Acquiring | undefined
    const decided = loop().call<Decision>((queue, ticket) => {
      judge(options ?? {}, ACQUIRE)
      if (signal && typeof signal.addEventListener !== 'function') {
        throw invalid("the signal is none; pass an AbortController's signal, or AbortSignal.timeout(...)")
      }
      const wait = deadline === undefined ? undefined : milliseconds(deadline, 'deadline')
      const most = milliseconds(timeout, 'timeout')
      acquiring = this.#core.acquire(queue, ticket, rule, ...encoded(key), cost, limits, wait, most)
    })
    return signal && acquiring ? this.#abortable(decided, acquiring, signal) : decided
  }

  /**
   * Gives back what a decision charged, by its receipt, and tells whether anything was: nothing is for the empty receipt of one
   * that charged nothing. Once: later calls give nothing back.
   */
  refund(receipt: string): Promise<boolean> {
    if (receipt === '') return Promise.resolve(false)
    return loop().call((queue, ticket) => {
      if (typeof receipt !== 'string') {
        throw new TidegateError(
          'invalid_receipt',
          `a receipt is text, and not ${typeof receipt}; pass decision.receipt`,
        )
      }
      this.#core.refund(queue, ticket, receipt)
    })
  }

  /** Forgets what a rule has counted for a key. With limits given at calls, write them here too. */
  reset(rule: string, key: Key, options?: { limits?: string | undefined }): Promise<void> {
    return loop().call((queue, ticket) => {
      judge(options ?? {}, OF_LIMITS)
      this.#core.reset(queue, ticket, rule, ...encoded(key), options?.limits)
    })
  }

  /**
   * Adds to a plain counter of a rule and key, whose window begins with the first hit and does not move; 0 only looks. It is
   * no decision: it always counts, and rejects if the store fails. For what serves as another limiter's store.
   */
  count(rule: string, key: Key, window: Duration, add: number = 0): Promise<Counted> {
    return this.#count(rule, key, window, add, undefined)
  }

  /** Takes units back from the window that began at `start`: never below 0, and nothing in another window. */
  takeBack(rule: string, key: Key, window: Duration, units: number, start: number): Promise<Counted> {
    return this.#count(rule, key, window, units, start)
  }

  /** The requests that a rule's sliding_window_log has of a key, the oldest first. */
  log(rule: string, key: Key, options?: { limits?: string | undefined }): Promise<LogEntry[]> {
    return loop().call((queue, ticket) => {
      judge(options ?? {}, OF_LIMITS)
      this.#core.log(queue, ticket, rule, ...encoded(key), options?.limits)
    })
  }

  /** Waits until the store can be used, at most 5 s unless said; rejects with why it cannot. */
  ready(timeout: Duration = READY): Promise<void> {
    return loop().call((queue, ticket) => this.#core.ready(queue, ticket, milliseconds(timeout, 'timeout')))
  }

  /** What has been counted since it was made. */
  metrics(): Metrics {
    return JSON.parse(calling(() => this.#core.metrics())) as Metrics
  }

  /** The same as Prometheus scrapes it. */
  prometheus(): string {
    return calling(() => this.#core.prometheus())
  }

  /** The names of its rules. */
  get rules(): string[] {
    return calling(() => this.#core.rules)
  }

  /** Lets go of its connections. Calls that are on their way are answered; later ones reject. */
  close(): void {
    this.#core.close()
  }

  /** The same as `close`, for `await using`. */
  async [Symbol.asyncDispose](): Promise<void> {
    this.close()
  }

  #count(rule: string, key: Key, window: Duration, units: number, start: number | undefined): Promise<Counted> {
    return loop().call((queue, ticket) => {
      if (typeof units !== 'number')
        throw invalid(`${String(units)} is no number of units; write a whole number from 0`)
      this.#core.count(queue, ticket, rule, ...encoded(key), milliseconds(window, 'window'), units, start)
    })
  }

  #abortable(decided: Promise<Decision>, acquiring: Acquiring, signal: AbortSignal): Promise<Decision> {
    return new Promise((resolve, reject) => {
      let isCalledOff = false
      const abort = (): void => {
        isCalledOff = true
        acquiring.callOff()
        reject(signal.reason)
      }
      const end = (): void => signal.removeEventListener('abort', abort)
      signal.addEventListener('abort', abort, { once: true })
      decided.then(
        (decision) => {
          end()
          // It was decided before it could be called off, and nobody takes it.
          if (isCalledOff && decision.receipt) this.refund(decision.receipt).catch(() => undefined)
          resolve(decision)
        },
        (error: unknown) => {
          end()
          reject(thrown(error))
        },
      )
    })
  }
}

/** What limiters are made of that are not made of options. */
const made = new WeakMap<object, Core>()

/** @internal A limiter of what the addon has made. */
export function limiterOf(core: Core): Limiter {
  const options = {}
  made.set(options, core)
  return new Limiter(options)
}
