import { invalid } from '../errors.js'
import { TidegateError } from '../index.js'
import type { Algorithm, Counted, ErrorCode, Limiter } from '../index.js'
import { hits, judgeAlgorithm, judged, limits, over, Source, waitMs, wholeMs } from './source.js'
import type { SourceOptions } from './source.js'

/** Options of {@link throttlerStorage}. */
export type ThrottlerStorageOptions = SourceOptions & {
  /** How hits are counted: `sliding_window` unless given, as throttler's own storage does. */
  algorithm?: Algorithm | undefined
  /**
   * What a store that fails does to a request: `reject` it, which Nest answers with 500, or `allow` it. The guard has
   * no option of its own for it. `reject` unless given.
   */
  onError?: 'reject' | 'allow' | undefined
}

/** What throttler's guard is told; times are whole seconds, rounded up. */
export interface ThrottlerRecord {
  totalHits: number
  timeToExpire: number
  isBlocked: boolean
  timeToBlockExpire: number
}

/** One call of the guard's, as the core takes it. */
interface Hit {
  readonly key: readonly string[]
  readonly limits: string
  readonly limit: number
  readonly ttl: number
  readonly block: number
}

const NAME = 'throttlerStorage'
const FAILURES: readonly ErrorCode[] = [
  'store_unavailable',
  'timeout',
  'store_refused',
  'unsupported_server',
  'corrupt_state',
]

/** Whoever began a block needs two calls more to forgive; who waits for that looks again so often. */
const MOST_LOOKS = 50

/** A `ThrottlerStorage` for `@nestjs/throttler`. */
export class TidegateThrottlerStorage {
  readonly #source: Source
  readonly #algorithm: Algorithm
  readonly #allows: boolean

  /** @throws TidegateError of options that cannot be meant. */
  constructor(options: ThrottlerStorageOptions = {}) {
    this.#source = new Source(NAME, 'throttler', options, ['algorithm', 'onError'])
    const { algorithm = 'sliding_window', onError = 'reject' } = options
    judgeAlgorithm(NAME, algorithm)
    if (onError !== 'reject' && onError !== 'allow') {
      throw invalid(`${NAME}: onError is ${String(onError)}; write "reject" or "allow"`)
    }
    this.#algorithm = algorithm
    this.#allows = onError === 'allow'
  }

  /**
   * Decides on a request, and blocks the key for a while once it was refused.
   *
   * @param ttl the window in milliseconds
   * @param limit requests per window; a call may differ from the one before it
   * @param blockDuration milliseconds for which a refused key stays refused; 0 for not longer than it must
   * @throws TidegateError if the store fails, unless `onError` is `allow`.
   */
  async increment(
    key: string,
    ttl: number,
    limit: number,
    blockDuration: number,
    throttlerName: string,
  ): Promise<ThrottlerRecord> {
    const windowMs = wholeMs(NAME, Math.ceil(ttl))
    const hit: Hit = {
      key: this.#source.parts(key, throttlerName),
      limits: limits(NAME, limit, windowMs, this.#algorithm),
      limit,
      ttl: windowMs,
      block: Math.max(0, Math.ceil(blockDuration)),
    }
    try {
      return await (hit.block > 0 ? this.#blocking(hit) : this.#plain(hit))
    } catch (error) {
      if (this.#allows && error instanceof TidegateError && FAILURES.includes(error.code)) return passes(0, 0)
      throw error
    }
  }

  /** Nest's hook: ends the storage's own connections. */
  onModuleDestroy(): void {
    this.#source.close()
  }

  async #plain(hit: Hit): Promise<ThrottlerRecord> {
    const decision = await this.#check(hit)
    const waits = seconds(waitMs(decision, hit.ttl))
    const used = hits(hit.limit, decision)
    return decision.allowed ? passes(used, waits) : refuses(used, waits)
  }

  /**
   * A block is a count of its own under the same key, whose window is the block's time. Whoever finds the limit used up
   * begins it; those who come while it lasts find it and charge nothing.
   */
  async #blocking(hit: Hit): Promise<ThrottlerRecord> {
    const before = await this.#look(hit)
    if (before.total > 0) return blocked(hit, before)
    const decision = await this.#check(hit)
    if (!decision.allowed) return blocked(hit, await this.#begin(hit))
    if (hit.block < hit.ttl) {
      const since = await this.#look(hit)
      if (since.total > 0 && !(await this.#preceded(hit, since, decision.receipt))) return blocked(hit, since)
    }
    return passes(hits(hit.limit, decision), seconds(waitMs(decision, hit.ttl)))
  }

  #look(hit: Hit): Promise<Counted> {
    return this.#limiter.count(this.#source.rule, hit.key, hit.block)
  }

  /** Begins a block, or finds it begun. One that is shorter than the window forgives what led to it. */
  async #begin(hit: Hit): Promise<Counted> {
    const { rule } = this.#source
    const block = await this.#limiter.count(rule, hit.key, hit.block, 1)
    if (block.total === 1 && hit.block < hit.ttl) {
      await this.#limiter.reset(rule, hit.key, { limits: hit.limits })
      await this.#limiter.count(rule, this.#forgiven(hit, block), hit.block, 1)
    }
    return block
  }

  /**
   * Whether a charge was made before the block began that was found after it. Then the block has forgiven it, and it
   * passes. One that is still there came into the quota of after the block: it is given back.
   */
  async #preceded(hit: Hit, block: Counted, receipt: string): Promise<boolean> {
    for (let looks = 0; looks < MOST_LOOKS; looks += 1) {
      const { total } = await this.#limiter.count(this.#source.rule, this.#forgiven(hit, block), hit.block)
      if (total > 0) break
    }
    return !(await this.#limiter.refund(receipt))
  }

  /** Where it stands that a block has forgiven. */
  #forgiven(hit: Hit, block: Counted): readonly string[] {
    return [...hit.key, `forgiven ${block.start}`]
  }

  async #check(hit: Hit) {
    return judged(await this.#limiter.check(this.#source.rule, hit.key, { limits: hit.limits }))
  }

  get #limiter(): Limiter {
    return this.#source.limiter
  }
}

/**
 * A storage for `ThrottlerModule.forRoot({ throttlers, storage })`.
 *
 * @example
 * ```ts
 * ThrottlerModule.forRoot({
 *   throttlers: [{ ttl: 60_000, limit: 100 }],
 *   storage: throttlerStorage({ url: 'redis://127.0.0.1:6379' }),
 * })
 * ```
 * @throws TidegateError of options that cannot be meant.
 */
export function throttlerStorage(options: ThrottlerStorageOptions = {}): TidegateThrottlerStorage {
  return new TidegateThrottlerStorage(options)
}

function passes(totalHits: number, timeToExpire: number): ThrottlerRecord {
  return { totalHits, timeToExpire, isBlocked: false, timeToBlockExpire: 0 }
}

function refuses(totalHits: number, wait: number): ThrottlerRecord {
  return { totalHits, timeToExpire: wait, isBlocked: true, timeToBlockExpire: wait }
}

function blocked(hit: Hit, block: Counted): ThrottlerRecord {
  return refuses(over(hit.limit), seconds(block.leftMs))
}

/** At least 1, so that who waits it is let in. */
function seconds(ms: number): number {
  return Math.max(1, Math.ceil(ms / 1000))
}
