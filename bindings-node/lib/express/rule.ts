import type { NextFunction, Response } from 'express'

import { accepted, identity, isPromise, listen, refuse, setFields, type Telling } from '../http.js'
import type { Admission, Document, Policy, Request as Asked } from '../index.js'
import { limitRule, ruleDocument } from '../rule-document.js'
import { costOf, MOST } from '../setup.js'
import { type Place, place, placeBeside, type Store, storeOf } from '../store.js'
import { ipKeyGenerator } from './address.js'
import { type Checks, SetupError } from './checks.js'
import { admissions, fail, type Limited, RateLimitInfo } from './info.js'
import { type Of, type Settings } from './options.js'
import { Property } from './property.js'
import { watch } from './returns.js'

/** A policy of one rule, and the request that is admitted again and again. */
interface Bucket {
  readonly policy: Policy
  readonly request: Asked
}

/** What is known of a request before it is decided. */
interface Call {
  told: Telling
  bucket: Bucket | undefined
  key: string | undefined
  cost: number
}

/** So many different limits of one rule are kept ready. */
const LIMITS = 1_000

function closed(): SetupError {
  return new SetupError('ERR_TIDEGATE_CLOSED', 'the limiter is closed', 'make another, or close it after the server')
}

/** A rule of a limiter's own: whose it is, how much it takes, and what a refusal looks like is said by options. */
export class RuleLimit {
  private readonly place: Place
  /** None once closed: a request that is kept keeps the connections. */
  private bucket: Bucket | undefined
  private readonly store: Store
  private readonly limits = new Map<number, Bucket>()
  /** The key comes from a function, and not from the core's own reading of the address. */
  private readonly isKeyed: boolean
  /** Nothing is asked for but the address. */
  private readonly isPlain: boolean
  private readonly returns: boolean
  private readonly answersItself: boolean
  /** How much of a key is told that is an address. */
  private readonly subnet: number | false | undefined
  private readonly property: Property

  constructor(
    private readonly settings: Settings,
    private readonly checks: Checks,
    answersItself: boolean,
  ) {
    const { policy, name, limit, cost, ipv6Subnet, keyGenerator, clock } = settings
    this.property = new Property(settings.requestPropertyName)
    this.answersItself = answersItself
    this.store = storeOf(settings)
    this.isKeyed = keyGenerator !== undefined || typeof ipv6Subnet === 'function'
    this.subnet = this.isKeyed ? undefined : (ipv6Subnet as number | false)
    this.isPlain = !this.isKeyed && typeof limit !== 'function' && typeof cost !== 'function'
    this.returns = settings.skipFailedRequests === true || settings.skipSuccessfulRequests === true
    const document = this.document(typeof limit === 'number' ? limit : MOST)
    this.place = policy === undefined ? place(this.store, name, document, clock) : placeBeside(policy, name, document)
    this.bucket = { policy: this.place.policy, request: this.place.policy.named('GET', name) }
  }

  /** Whether another limiter on the store has this one's buckets. */
  get isNameTaken(): boolean {
    return this.place.isTaken
  }

  handle(request: Limited, response: Response, next: NextFunction): void {
    const { skip } = this.settings
    if (skip === undefined) return this.judge(request, response, next)
    let skips: boolean | PromiseLike<boolean>
    try {
      skips = skip(request, response)
    } catch (error) {
      return fail(next, error)
    }
    if (!isPromise(skips)) return skips ? next() : this.judge(request, response, next)
    skips.then(
      (yes) => (yes ? next() : this.judge(request, response, next)),
      (error) => fail(next, error),
    )
  }

  private judge(request: Limited, response: Response, next: NextFunction): void {
    let call: Call | Promise<Call>
    try {
      call = this.isPlain ? this.plain(request) : this.asked(request, response)
    } catch (error) {
      return fail(next, error)
    }
    if (!isPromise(call)) return this.admit(call, request, response, next)
    call.then(
      (call) => this.admit(call, request, response, next),
      (error) => fail(next, error),
    )
  }

  private admit(call: Call, request: Limited, response: Response, next: NextFunction): void {
    const before = admissions.get(request)
    if (before !== undefined) call.told.after = before
    const { bucket } = call
    if (bucket === undefined) return fail(next, closed())
    bucket.policy.admit(bucket.request, call.told).then(
      (admission) => {
        let passes: boolean
        try {
          passes = this.decided(admission, call, request, response, next)
        } catch (error) {
          return fail(next, error)
        }
        if (passes) next()
      },
      (error) => fail(next, error),
    )
  }

  /** The address alone. */
  private plain(request: Limited): Call {
    const { ip } = request
    if (this.checks.looks()) this.checks.address(request, ip)
    return { told: { peer: ip || null }, bucket: this.bucket, key: ip, cost: this.units }
  }

  /** A document refuses a cost that its limit never admits; a limit that comes with a request refuses the request. */
  private get isCostTold(): boolean {
    return typeof this.settings.cost === 'function' || typeof this.settings.limit === 'function'
  }

  private get units(): number {
    return typeof this.settings.cost === 'number' ? this.settings.cost : 1
  }

  /** What functions are asked for, all at once. */
  private asked(request: Limited, response: Response): Call | Promise<Call> {
    const { limit, cost } = this.settings
    const call = this.plainOrKeyed(request)
    const waits: PromiseLike<unknown>[] = []
    const hear = <T>(of: Of<T>, take: (answer: T) => void) => listen(() => of(request, response), waits, take)
    const values: Record<string, string | Uint8Array | number> = {}
    call.told.values = values
    if (this.isKeyed) this.hearKey(hear, request, (key) => this.keyed(call, values, key))
    if (typeof limit === 'function') hear(limit, (limit) => (call.bucket = this.bucketOf(limit)))
    if (typeof cost === 'function') hear(cost, (cost) => (call.cost = values['cost'] = costOf(cost)))
    else if (this.isCostTold) values['cost'] = call.cost
    return waits.length === 0 ? call : Promise.all(waits).then(() => call)
  }

  private plainOrKeyed(request: Limited): Call {
    if (!this.isKeyed) return this.plain(request)
    return { told: {}, bucket: this.bucket, key: undefined, cost: this.units }
  }

  private hearKey(
    hear: <T>(of: Of<T>, take: (answer: T) => void) => void,
    request: Limited,
    take: (key: unknown) => void,
  ): void {
    const { keyGenerator, ipv6Subnet } = this.settings
    if (keyGenerator !== undefined) return hear(keyGenerator, take)
    const { ip } = request
    if (this.checks.looks()) this.checks.address(request, ip)
    if (ip?.includes(':') !== true) return take(ip)
    hear(ipv6Subnet as Of<number | false>, (subnet) => take(ipKeyGenerator(ip, subnet)))
  }

  private keyed(call: Call, values: Record<string, string | Uint8Array | number>, answer: unknown): void {
    const key = identity(answer)
    if (key === null || key === '') {
      const what = 'keyGenerator has given no key for a request'
      const hint = 'all such requests share one limit; write something to fall back to, such as ipKeyGenerator(req.ip)'
      return this.checks.report('undefinedKey', 'ERR_TIDEGATE_UNDEFINED_KEY', what, hint)
    }
    values['key'] = key
    call.key = typeof key === 'object' ? Buffer.from(key).toString() : String(key)
  }

  /** The rule with another limit, on the same state. The limits that were asked for last are kept. */
  private bucketOf(limit: number): Bucket {
    let bucket = this.limits.get(limit)
    if (bucket === undefined) {
      if (!Number.isInteger(limit) || limit < 0 || limit > MOST) {
        const hint = `write a whole number from 0 to ${MOST}, or skip for requests without a limit`
        throw new SetupError('ERR_TIDEGATE_LIMIT', `limit has given ${String(limit)} for a request`, hint)
      }
      const policy = this.place.policy.beside(this.document(limit))
      bucket = { policy, request: policy.named('GET', this.settings.name) }
      if (this.limits.size >= LIMITS) this.limits.delete(this.limits.keys().next().value as number)
    } else {
      this.limits.delete(limit)
    }
    this.limits.set(limit, bucket)
    return bucket
  }

  /** Tells the response and the request of a decision. */
  private decided(given: Admission, call: Call, request: Limited, response: Response, next: NextFunction): boolean {
    const saysItself = this.answersItself && given.outcome === 'refused'
    const admission = saysItself ? given : accepted(given, request)
    const before = call.told.after ?? undefined
    admissions.set(request, admission)
    this.property.set(request, new RateLimitInfo(admission, this.settings.name, call.key, this.subnet, call.cost))
    if (admission.allowed) {
      if (this.returns) watch(this.settings, admission, request, response)
      if (!response.headersSent) setFields(response, admission, before)
      return true
    }
    if (response.headersSent) return false
    if (!saysItself) refuse(response, admission, before)
    else this.answer(admission, before, request, response, next).catch((error: unknown) => fail(next, error))
    return false
  }

  /** Answers a refusal as the options say. */
  private async answer(
    admission: Admission,
    before: Admission | undefined,
    request: Limited,
    response: Response,
    next: NextFunction,
  ): Promise<void> {
    const { handler, message, statusCode, retryAfter } = this.settings
    setFields(response, admission, before, false)
    if (retryAfter !== undefined) {
      const seconds = typeof retryAfter === 'function' ? await retryAfter(request, response) : retryAfter
      if (!response.headersSent) response.setHeader('Retry-After', String(seconds))
    }
    if (handler !== undefined) return void (await handler(request, response, next, this.settings))
    response.status(statusCode)
    const body: unknown = typeof message === 'function' ? await (message as Of<unknown>)(request, response) : message
    if (!response.writableEnded) response.send(body)
  }

  /** Forgets what a key has used. */
  resetKey(key: string): Promise<void> {
    return this.place.policy.limiter.reset(this.settings.name, this.parts(key))
  }

  /** What a key has used; undefined if that is nothing. */
  async getKey(key: string): Promise<{ totalHits: number; resetTime: Date | undefined } | undefined> {
    const decision = await this.place.policy.limiter.peek(this.settings.name, this.parts(key))
    if (decision.failure !== null) throw decision.failure
    const totalHits = Math.max(decision.limit - decision.remaining, 0)
    if (totalHits === 0) return undefined
    const wait = decision.resetAfterMs
    return { totalHits, resetTime: wait === null ? undefined : new Date(Date.now() + wait) }
  }

  /** A key as it is stored: with where it comes from. */
  private parts(key: string): string[] {
    if (this.isKeyed) return ['app', 'key', key]
    const slash = key.indexOf('/')
    const address = this.place.policy
      .named('GET', this.settings.name)
      .clientKey({ peer: slash < 0 ? key : key.slice(0, slash) })
    if (address !== null) return ['ip', address]
    throw new SetupError('ERR_TIDEGATE_INVALID_IP_ADDRESS', `${JSON.stringify(key)} is no address`, 'write one')
  }

  close(): void {
    this.bucket = undefined
    this.limits.clear()
    this.place.leave()
  }

  private document(limit: number): Document {
    const { name, windowMs, algorithm, onError, standardHeaders, legacyHeaders, ipv6Subnet } = this.settings
    const headers = [standardHeaders === false ? [] : [standardHeaders], legacyHeaders ? ['x-ratelimit'] : []].flat()
    return ruleDocument({
      name,
      store: this.store,
      rule: limitRule(limit, windowMs, algorithm, onError),
      isKeyed: this.isKeyed,
      cost: this.isCostTold ? 'told' : this.units,
      subnet: typeof ipv6Subnet === 'number' ? ipv6Subnet : 128,
      fields: { headers },
    })
  }
}
