import type { NextFunction, Request, Response } from 'express'

import { type Asks, ask, isPromise, linesOf, peerOf, refuse, setFields, type Telling, unasked } from '../http.js'
import { type Admission, Policy, type Request as Asked } from '../index.js'
import type { Checks } from './checks.js'
import { admissions, fail, type Limited, RateLimitInfo } from './info.js'
import type { RoutesOptions } from './options.js'
import { pathOf } from './path.js'
import { Property } from './property.js'

/** The routes of a document: they choose the rules, whose they are, and what a refusal looks like. */
export class RoutesLimit {
  private readonly policy: Policy
  private readonly isOwn: boolean
  private readonly asks: Asks<Request>
  private readonly property: Property
  private readonly route: string | undefined

  constructor(
    options: RoutesOptions,
    private readonly checks: Checks,
  ) {
    const { policy, route, user, values, answers } = options
    this.isOwn = !(policy instanceof Policy)
    this.policy = policy instanceof Policy ? policy : new Policy(policy)
    this.asks = { user, values, answers }
    this.route = route
    this.property = new Property(options.requestPropertyName ?? 'rateLimit')
    if (route !== undefined) this.policy.named('GET', route)
    const missing = unasked(this.policy, this.asks, route === undefined ? undefined : [route])
    if (missing.length === 0) return
    this.checks.report(
      'unasked',
      'ERR_TIDEGATE_UNASKED',
      'the document needs what nobody is asked for',
      missing.join('; '),
    )
  }

  handle(request: Limited, response: Response, next: NextFunction): void {
    let asked: Asked
    let told: Telling | Promise<Telling>
    try {
      asked = this.asked(request)
      told = this.told(asked, request)
    } catch (error) {
      return fail(next, error)
    }
    if (!isPromise(told)) return this.admit(asked, told, request, response, next)
    told.then(
      (told) => this.admit(asked, told, request, response, next),
      (error) => fail(next, error),
    )
  }

  private asked(request: Limited): Asked {
    if (this.checks.looks()) this.checks.documentAddress(request, this.policy.needsHeaders)
    if (this.route !== undefined) return this.policy.named(request.method, this.route)
    // As it came, whatever it is mounted under: a router that this stands in has taken its own part off `url`.
    return this.policy.request(request.method, pathOf(request.originalUrl))
  }

  private told(asked: Asked, request: Limited): Telling | Promise<Telling> {
    const told: Telling = {
      peer: peerOf(request.socket),
      headers: linesOf(request, asked.needsHeaders),
    }
    const before = admissions.get(request)
    if (before !== undefined) told.after = before
    return ask(this.asks, asked, request, told)
  }

  private admit(asked: Asked, told: Telling, request: Limited, response: Response, next: NextFunction): void {
    this.policy.admit(asked, told).then(
      (admission) => {
        try {
          this.decided(admission, request, response)
        } catch (error) {
          return fail(next, error)
        }
        if (admission.allowed) next()
      },
      (error) => fail(next, error),
    )
  }

  private decided(admission: Admission, request: Limited, response: Response): void {
    const before = admissions.get(request)
    admissions.set(request, admission)
    const { outcome } = admission
    if (outcome !== 'unlimited' && outcome !== 'exempt') this.property.set(request, new RateLimitInfo(admission))
    if (!admission.allowed) return refuse(response, admission, before)
    // A client that goes away before it has its answer has had the work done: only a response settles.
    response.once('finish', () => void admission.settle(response.statusCode))
    if (!response.headersSent) setFields(response, admission, before)
  }

  close(): void {
    if (this.isOwn) this.policy.close()
  }
}
