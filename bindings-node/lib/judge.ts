/**
 * What the limiters of the frameworks that wait for promises share: who judges a request, by the routes of a policy or by
 * one rule that options make.
 */

import type { Socket } from 'node:net'

import {
  accepted,
  type Asks,
  ask,
  type Headed,
  type Identity,
  identity,
  linesOf,
  peerOf,
  type Telling,
  unasked,
} from './http.js'
import {
  type Admission,
  type Algorithm,
  type Document,
  type Duration,
  Policy,
  type Request,
  type Rule,
} from './index.js'
import { admissions, RateLimitInfo } from './info.js'
import { limitRule, type OnError, type RuleDocument, ruleDocument } from './rule-document.js'
import { costOf, SetupError } from './setup.js'
import { place, placeBeside, type Place, storeOf } from './store.js'
import type { FakeClock } from './testing.js'

/** A request that came over a connection; Node's `IncomingMessage` is one. */
export interface Incoming extends Headed {
  readonly socket: Pick<Socket, 'remoteAddress' | 'destroyed'> | null
}

export type { OnError }

/** Something that is worked out for each request; it may come by a promise. */
export type Of<R, T> = (request: R) => T | PromiseLike<T>

/** What rules of all frameworks' options have in common. */
export interface RuleBasics {
  /** How the limit counts. @defaultValue `sliding_window` */
  algorithm?: Algorithm | 'gcra' | undefined
  /** What to do while the store fails. @defaultValue `allow` */
  onError?: OnError | undefined
  /** The store, such as `redis://127.0.0.1:6379`. @defaultValue memory, or `TIDEGATE_URL` of the environment */
  url?: string | undefined
  /** What every stored key begins with. @defaultValue `tidegate` */
  prefix?: string | undefined
  /** How long a decision may take. @defaultValue 100 ms */
  deadline?: Duration | undefined
  /** A policy on whose store the rule is. */
  policy?: Policy | undefined
  /** In memory, on this clock: for tests. */
  clock?: FakeClock | undefined
}

/** The names of these. */
export const BASICS = ['algorithm', 'onError', 'url', 'prefix', 'deadline', 'policy', 'clock']

/** A request that was judged: the decision, and how the limit stands, if it has one. */
export interface Judged {
  readonly admission: Admission
  readonly info: RateLimitInfo | undefined
}

/** Requests of a framework, judged by the routes of a document. */
export class Routes<R> {
  readonly policy: Policy
  private readonly isOwn: boolean

  /** @param warn is told of what the document needs and nobody is asked for */
  constructor(
    policy: Policy | Document | string,
    private readonly asks: Asks<R>,
    warn: (error: SetupError) => void,
  ) {
    this.isOwn = !(policy instanceof Policy)
    this.policy = policy instanceof Policy ? policy : new Policy(policy)
    const missing = unasked(this.policy, asks)
    if (missing.length === 0) return
    const what = 'the document needs what nobody is asked for'
    warn(new SetupError('ERR_TIDEGATE_UNASKED', what, missing.join('; ')))
  }

  /** Judges by the path of the request. @param path as `wirePath` gives it */
  byPath(method: string, path: string, incoming: Incoming, of: R): Promise<Judged> {
    return this.judge(this.policy.request(method, path), incoming, of)
  }

  /** Judges by a route that is named, whatever the path is. */
  byName(method: string, route: string, incoming: Incoming, of: R): Promise<Judged> {
    return this.judge(this.policy.named(method, route), incoming, of)
  }

  private async judge(request: Request, incoming: Incoming, of: R): Promise<Judged> {
    const told: Telling = {
      peer: peerOf(incoming.socket),
      headers: linesOf(incoming, request.needsHeaders),
    }
    const telling = ask(this.asks, request, of, told)
    const admission = await admitted(
      this.policy,
      request,
      telling instanceof Promise ? await telling : telling,
      incoming,
    )
    const { outcome } = admission
    const isLimited = outcome !== 'unlimited' && outcome !== 'exempt'
    return { admission, info: isLimited ? new RateLimitInfo(admission) : undefined }
  }

  close(): void {
    if (this.isOwn) this.policy.close()
  }
}

/** A rule that options make. */
export interface RuleOptions extends Omit<RuleDocument, 'store' | 'rule'> {
  /** Units per window. */
  readonly limit: number
  /** Whether it is worked out for each request, and `limit` is what it is not. */
  readonly isLimitTold: boolean
  readonly window: Duration
  /** The rule in the document's own words, instead of `limit`, `window` and what `RuleBasics` say of it. */
  readonly rule?: Rule | undefined
}

/** What is told of one request. */
export interface Call {
  /** Whose it is, where the rule is keyed. */
  key?: Identity
  /** The client's address, where it is not. */
  ip?: string | null | undefined
  cost?: number | undefined
  limit?: number | undefined
  window?: Duration | undefined
}

/** A policy of one rule, and the request that is admitted again and again. */
interface Bucket {
  readonly policy: Policy
  readonly request: Request
}

/** So many different limits of one rule are kept ready. */
const BUCKETS = 1_000

/** One rule, which judges whatever requests it is given. */
export class OneRule {
  private readonly place: Place
  /** None once closed: a request that is kept keeps the connections. */
  private bucket: Bucket | undefined
  private readonly buckets = new Map<string, Bucket>()
  private hasWarned = false

  /**
   * @param warn is told once of a request without a key
   * @throws TidegateError for what a document cannot say
   */
  constructor(
    private readonly options: RuleOptions,
    private readonly basics: RuleBasics,
    private readonly warn: (error: SetupError) => void,
  ) {
    const document = this.document(options.limit, options.window)
    const { policy } = basics
    if (policy !== undefined && !(policy instanceof Policy)) {
      const hint = 'write a Policy, or leave the rule out for the routes of a document'
      throw new SetupError('ERR_TIDEGATE_TYPE', `policy is a ${typeof policy} beside a rule`, hint)
    }
    this.place =
      policy === undefined
        ? place(storeOf(basics), options.name, document, basics.clock)
        : placeBeside(policy, options.name, document)
    this.bucket = bucketOf(this.place.policy, options.name)
  }

  get name(): string {
    return this.options.name
  }

  get policy(): Policy {
    return this.place.policy
  }

  /** Whether another limiter of this process has a rule of this name on the same store. */
  get isNameTaken(): boolean {
    return this.place.isTaken
  }

  async judge(call: Call, incoming: Incoming): Promise<Judged> {
    const values: Record<string, string | Uint8Array | number> = {}
    const told: Telling = { values }
    if (this.options.isKeyed) this.addKey(call.key, values)
    else told.peer = call.ip || null
    const cost = this.options.cost === 'told' ? costOf(call.cost) : this.units
    if (this.isCostTold) values['cost'] = cost
    const { policy, request } = this.bucketFor(call)
    const admission = await admitted(policy, request, told, incoming)
    const { isKeyed, subnet } = this.options
    const key = isKeyed ? textOf(values['key']) : (call.ip ?? undefined)
    return { admission, info: new RateLimitInfo(admission, this.name, key, isKeyed ? undefined : subnet, cost) }
  }

  /** Warns where another limiter has this one's buckets by chance: it has a name that nobody wrote. */
  warnOfName(): void {
    if (!this.isNameTaken) return
    const what = `another limiter on this store is named ${this.name} as well: both share what is used`
    this.warn(new SetupError('ERR_TIDEGATE_SHARED_NAME', what, "write a name for each, such as name: 'login'"))
  }

  /** An address as the core spells it; null for what is none. */
  addressOf(text: string): string | null {
    return this.bucket?.request.clientAddress({ peer: text }) ?? null
  }

  /** A document refuses a cost that its limit never admits; a limit that comes with a request refuses the request. */
  private get isCostTold(): boolean {
    return this.options.cost === 'told' || this.options.isLimitTold
  }

  private get units(): number {
    return typeof this.options.cost === 'number' ? this.options.cost : 1
  }

  private addKey(given: Identity, values: Record<string, string | Uint8Array | number>): void {
    const key = identity(given)
    if (key !== null && key !== '') values['key'] = key
    else if (!this.hasWarned) {
      this.hasWarned = true
      const what = `the key function of ${this.name} has given no key for a request`
      const hint = 'all such requests share one limit; write something to fall back to, such as the address'
      this.warn(new SetupError('ERR_TIDEGATE_UNDEFINED_KEY', what, hint))
    }
  }

  private bucketFor({ limit = this.options.limit, window = this.options.window }: Call): Bucket {
    if (this.bucket === undefined) {
      const hint = 'make another, or close it after the server'
      throw new SetupError('ERR_TIDEGATE_CLOSED', `the limiter ${this.name} is closed`, hint)
    }
    if (limit === this.options.limit && window === this.options.window) return this.bucket
    const id = `${limit}/${window}`
    let bucket = this.buckets.get(id)
    if (bucket === undefined) {
      bucket = bucketOf(this.place.policy.beside(this.document(limit, window)), this.options.name)
      if (this.buckets.size >= BUCKETS) this.buckets.delete(this.buckets.keys().next().value as string)
    } else {
      this.buckets.delete(id)
    }
    this.buckets.set(id, bucket)
    return bucket
  }

  private document(limit: number, window: Duration): Document {
    const { algorithm, onError } = this.basics
    const { rule = limitRule(limit, window, algorithm, onError) } = this.options
    const cost = this.isCostTold ? 'told' : this.options.cost
    return ruleDocument({ ...this.options, cost, rule, store: storeOf(this.basics) })
  }

  close(): void {
    this.bucket = undefined
    this.buckets.clear()
    this.place.leave()
  }
}

function bucketOf(policy: Policy, name: string): Bucket {
  return { policy, request: policy.named('GET', name) }
}

function textOf(key: string | Uint8Array | number | undefined): string | undefined {
  return key instanceof Uint8Array ? Buffer.from(key).toString() : key === undefined ? undefined : String(key)
}

async function admitted(policy: Policy, request: Request, told: Telling, incoming: Incoming): Promise<Admission> {
  const before = admissions.get(incoming)
  if (before !== undefined) told.after = before
  const answer = await policy.admit(request, told)
  // Where headers were told, `Accept` was among them.
  const admission = told.headers === undefined ? accepted(answer, incoming) : answer
  admissions.set(incoming, admission)
  return admission
}
