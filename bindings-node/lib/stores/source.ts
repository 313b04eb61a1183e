import { algorithms } from '../decision.js'
import { invalid } from '../errors.js'
import { Limiter } from '../index.js'
import type { Algorithm, Decision, Duration } from '../index.js'
import type { FakeClock } from '../testing.js'

/** State of the store's own, on the server at `url`. */
export interface OwnSource {
  /** A server, as in a document's `[store]`. In memory without it, unless the environment has a `TIDEGATE_URL`. */
  url?: string | undefined
  /**
   * What every stored key begins with: 1 to 64 of `A-Z a-z 0-9 _ . : -`; `tidegate` unless given. Stores of one kind
   * with one prefix on one server share their state.
   */
  prefix?: string | undefined
  /** How long a call may take before it is an error: 1 ms to 1 minute; 1 s unless given. */
  deadline?: Duration | undefined
  /** A clock for tests; in memory only. */
  clock?: FakeClock | undefined
  limiter?: never
  rule?: never
}

/** State in a limiter that the application has, and closes. */
export interface SharedSource {
  limiter: Limiter
  /** The rule whose name stands in the stored keys. May be left out where the limiter has one rule. Its limits are not asked. */
  rule?: string | undefined
  /** Keeps apart what stands under one rule: stores with the same rule and prefix share their state. */
  prefix?: string | undefined
  url?: never
  deadline?: never
  clock?: never
}

/** Where a store keeps its state. */
export type SourceOptions = OwnSource | SharedSource

const OPTIONS = ['url', 'prefix', 'deadline', 'clock', 'limiter', 'rule']

/** The limiter and the rule under which a store has its state. */
export class Source {
  /** The rule that stands in the stored keys. */
  readonly rule: string
  /** What tells this source's keys from those of another of the same kind. */
  readonly prefix: string
  readonly #of: string
  readonly #shared: string | undefined
  readonly #make: (() => Limiter) | undefined
  readonly #isLocal: boolean
  #limiter: Limiter

  /**
   * @param of the function that the user called, for errors
   * @param rule what an own limiter's rule is called
   * @param further the options that are of this kind of store only
   */
  constructor(of: string, rule: string, options: SourceOptions, further: readonly string[]) {
    judgeNames(of, options, [...OPTIONS, ...further])
    this.#of = of
    if (options.limiter) {
      this.rule = ruleOf(of, options.limiter, options.rule)
      this.#shared = options.prefix
      this.prefix = options.prefix === undefined ? this.rule : `${this.rule}:${options.prefix}`
      this.#limiter = options.limiter
      this.#isLocal = false
      return
    }
    const { url, prefix = 'tidegate', deadline = '1s', clock } = options
    this.rule = rule
    this.prefix = prefix
    this.#isLocal = clock !== undefined || (!url && !process.env['TIDEGATE_URL'])
    // The rule's own limit is never asked: each call brings one, or only counts.
    const rules = { [rule]: { limits: '0/s', on_error: 'deny' as const } }
    this.#make = () =>
      new Limiter({ rules, prefix, deadline, ...(url !== undefined && { url }), ...(clock && { clock }) })
    this.#limiter = this.#make()
  }

  get limiter(): Limiter {
    return this.#limiter
  }

  /** A key as it is stored. Hosts in JavaScript may have numbers. */
  key(key: string): string | readonly string[] {
    const who = this.#judged(key)
    return this.#shared === undefined ? who : [this.#shared, who]
  }

  /** A key of several parts as it is stored. */
  parts(...parts: readonly string[]): readonly string[] {
    const all = parts.map((part) => this.#judged(part))
    return this.#shared === undefined ? all : [this.#shared, ...all]
  }

  /** Begins anew, where the state is this source's alone and can be left. */
  forget(): void {
    if (!this.#make || !this.#isLocal) {
      const why = this.#make ? 'to find all keys would scan the server' : 'the limiter belongs to the application'
      throw invalid(`${this.#of}: everything cannot be reset: ${why}; write resetKey(key), or take another prefix`)
    }
    const before = this.#limiter
    this.#limiter = this.#make()
    before.close()
  }

  #judged(key: unknown): string {
    if (typeof key === 'string' || Number.isFinite(key)) return String(key)
    throw invalid(`${this.#of}: the key is ${String(key)}; return from its generator who is limited, as a string`)
  }

  /** Ends connections that are this source's own. */
  close(): void {
    if (this.#make) this.#limiter.close()
  }
}

/** A decision of the store's, not of a failure policy: the host has its own way to go on. */
export function judged(decision: Decision): Decision {
  if (decision.failure) throw decision.failure
  return decision
}

/** One limit as text, for a call. A limit that is not whole admits what fits into it. */
export function limits(of: string, limit: number, windowMs: number, algorithm: Algorithm, burst?: number): string {
  if (typeof limit !== 'number' || !Number.isFinite(limit)) {
    throw invalid(`${of}: the limit is ${String(limit)}; write a number, or do not limit that request`)
  }
  const whole = Math.max(0, Math.floor(limit))
  return `${whole}/${wholeMs(of, windowMs)}ms ${algorithm}${burst === undefined ? '' : ` burst ${burst}`}`
}

/** The units that a decision says are used, of a host that wants at least 1. */
export function hits(limit: number, decision: Decision): number {
  return decision.allowed ? Math.max(1, Math.floor(limit) - decision.remaining) : over(limit)
}

/** The least that a host takes for a refusal. */
export function over(limit: number): number {
  return Math.max(0, Math.floor(limit)) + 1
}

/** How long until a decision is worth asking again, or until all is whole; a window where nothing is known. */
export function waitMs(decision: Decision, windowMs: number): number {
  return (decision.allowed ? decision.resetAfterMs : decision.retryAfterMs) ?? windowMs
}

/** A window of whole milliseconds; the core judges how long it may be. */
export function wholeMs(of: string, windowMs: number): number {
  if (!Number.isInteger(windowMs) || windowMs < 1) {
    throw invalid(`${of}: a window of ${String(windowMs)} ms; write whole milliseconds, such as 60000`)
  }
  return windowMs
}

export function judgeAlgorithm(of: string, algorithm: string): void {
  const known: readonly string[] = algorithms()
  if (!known.includes(algorithm)) {
    throw invalid(`${of}: algorithm ${JSON.stringify(algorithm)} is not known; write one of ${known.join(', ')}`)
  }
}

function judgeNames(of: string, options: SourceOptions, known: readonly string[]): void {
  if (typeof options !== 'object' || options === null || options instanceof Limiter) {
    throw invalid(`${of} takes an object of options; write ${of}({ limiter, rule }) or ${of}({ url })`)
  }
  for (const name of Object.keys(options)) {
    if (!known.includes(name)) {
      throw invalid(`${of}: ${JSON.stringify(name)} is not an option; there are ${known.join(', ')}`)
    }
  }
  if (options.limiter === undefined) {
    if (options.rule !== undefined) throw invalid(`${of}: rule is of a limiter; write it beside limiter`)
    if (options.clock && options.url !== undefined) {
      throw invalid(`${of}: a clock is for tests in memory; leave url out, or clock`)
    }
    return
  }
  if (!(options.limiter instanceof Limiter)) throw invalid(`${of}: limiter must be a Limiter of tidegate`)
  for (const name of ['url', 'deadline', 'clock'] as const) {
    if (options[name] !== undefined) throw invalid(`${of}: limiter has its own ${name}; leave one of the two out`)
  }
}

function ruleOf(of: string, limiter: Limiter, rule: string | undefined): string {
  const { rules } = limiter
  const chosen = rule ?? (rules.length === 1 ? rules[0] : undefined)
  if (chosen === undefined || !rules.includes(chosen)) {
    const asked = rule === undefined ? 'which rule stands in the stored keys?' : `no rule is called ${rule};`
    throw invalid(`${of}: ${asked} write rule: one of ${rules.join(', ') || '(the limiter has none)'}`)
  }
  return chosen
}
