import { Decision } from './decision.js'
import { calling, invalid, lazily } from './errors.js'
import { fieldName, loop } from './loop.js'
import { names, type PolicyCore, type Request as NativeRequest } from './native.js'
import { ADMISSION, Chunk, RECORD } from './record.js'

/** Requests that are kept, until nobody has them. */
const kept = new FinalizationRegistry<{ policy: PolicyCore; number: number }>(({ policy, number }) =>
  policy.forget(number),
)

/** A request, and what its route needs to be told of it. One that is kept may be admitted any number of times. */
export class Request {
  readonly #policy: PolicyCore
  readonly #native: NativeRequest
  #number: number | undefined
  #wasAdmitted = false
  #needsHeaders: readonly string[] | undefined

  /** @internal */
  constructor(policy: PolicyCore, native: NativeRequest) {
    this.#policy = policy
    this.#native = native
  }

  /**
   * @internal The number under which its policy admits it.
   * @throws TidegateError `invalid_request` for one of another policy.
   */
  number(policy: PolicyCore): number {
    if (policy !== this.#policy) throw invalid('the request is of another policy; make it with policy.request(...)')
    if (this.#number !== undefined) return this.#number
    const isOnce = !this.#wasAdmitted
    this.#wasAdmitted = true
    const number = policy.keep(this.#native, isOnce)
    // Most are admitted once. Those that come again are kept for as long as somebody has them.
    if (!isOnce) kept.register(this, { policy, number: (this.#number = number) })
    return number
  }

  /** The name of its route; null if it has none. */
  get route(): string | null {
    return this.#native.route
  }

  /** Whether its rules need the user: only then the session has to be looked at. */
  get needsUser(): boolean {
    return this.#native.needsUser
  }

  /** The request headers that its rules need, in lower case, and `accept`, which a refusal needs. */
  get needsHeaders(): readonly string[] {
    return (this.#needsHeaders ??= this.#native.needsHeaders)
  }

  /** The names of what its keys and costs need to be supplied with. */
  get needsValues(): readonly string[] {
    return this.#native.needsValues
  }

  /** The questions that may exempt it. */
  get needsAnswers(): readonly string[] {
    return this.#native.needsAnswers
  }

  /** The client's address: the peer's, or what trusted proxies say; null if it is not known. */
  clientAddress(
    told: { peer?: string | null | undefined; headers?: readonly string[] | undefined } = {},
  ): string | null {
    return calling(() => this.#native.clientAddress(told.peer, told.headers as string[] | undefined))
  }

  /** The client's address as it stands in keys: IPv6 by its prefix. */
  clientKey(told: { peer?: string | null | undefined; headers?: readonly string[] | undefined } = {}): string | null {
    return calling(() => this.#native.clientKey(told.peer, told.headers as string[] | undefined))
  }
}

/** What became of a request; in a shadow route what would have become of it. */
export type AdmissionOutcome =
  'allowed' | 'refused' | 'unavailable' | 'no_identity' | 'exempt' | 'unlimited' | 'invalid'

const outcomes = lazily(() => names()['outcomes'] as AdmissionOutcome[])

/** Whether a request may pass, and what its response is to have. */
export class Admission {
  readonly #chunk: Chunk
  readonly #at: number
  #decisions: readonly Decision[] | undefined

  /** @internal */
  constructor(chunk: Chunk, at: number) {
    this.#chunk = chunk
    this.#at = at
  }

  /** Whether the request may pass. */
  get allowed(): boolean {
    return this.#number(ADMISSION.allowed) === 1
  }

  /** What became of it. */
  get outcome(): AdmissionOutcome {
    return outcomes()[this.#number(ADMISSION.outcome)]!
  }

  /** Whether its route only reports. */
  get isShadow(): boolean {
    return this.#number(ADMISSION.shadow) === 1
  }

  /** The name of its route; null if it has none. */
  get route(): string | null {
    return this.#text(1)
  }

  /** The status to answer with: 429, 503 or 403; null where the request may pass. */
  get status(): number | null {
    const status = this.#number(ADMISSION.status)
    return status < 0 ? null : status
  }

  /** The fields that the response is to have, of a refusal or of what the application answers. */
  get headers(): [name: string, value: string][] {
    const flat = this.rawHeaders
    return Array.from({ length: flat.length / 2 }, (_, index) => [flat[2 * index]!, flat[2 * index + 1]!])
  }

  /** The same in one list: a name, its value, a name, its value. */
  get rawHeaders(): string[] {
    const count = this.#number(ADMISSION.fields)
    const start = this.#textAt(count)
    // All values at once: to ask for each costs more than to cut them.
    const values = this.#chunk.bytes.toString('latin1', start, start + this.#valuesLength(count))
    const flat: string[] = []
    let at = 0
    for (let field = 0; field < count; field++) {
      const place = ADMISSION.numbers + 2 * field
      const end = at + this.#number(place + 1)
      flat.push(fieldName(this.#number(place)), values.slice(at, end))
      at = end
    }
    return flat
  }

  /** The body of a refusal, whose type is among the headers; null where the request may pass. */
  get body(): string | null {
    return this.#text(0)
  }

  /** A decision for each key, those of an admission before this one first. */
  get decisions(): readonly Decision[] {
    return (this.#decisions ??= this.#read())
  }

  /**
   * Gives the charge back where the route's `refund_status` has the response's status, and tells whether anything was. Once:
   * later calls do nothing. It never rejects: what cannot be given back is counted and logged.
   */
  settle(status: number): Promise<boolean> {
    if (this.#number(ADMISSION.mayRefund) === 0) return Promise.resolve(false)
    return loop()
      .call<boolean>((queue, ticket) => this.#chunk.kept.settle(this.#place, queue, ticket, status))
      .catch(() => false)
  }

  /** Gives back all that it charged, and tells whether anything was. Once. It never rejects. */
  undo(): Promise<boolean> {
    return loop()
      .call<boolean>((queue, ticket) => this.#chunk.kept.undo(this.#place, queue, ticket))
      .catch(() => false)
  }

  /** @internal The same, its refusal in the form that `Accept` likes best: for whoever looks at that only where it is needed. */
  accepting(accept: string): Admission {
    const { queue } = loop()
    const { kept } = this.#chunk
    for (let size = this.#number(RECORD.length) * 16; ; size *= 2) {
      const chunk = new Chunk(size)
      if (queue.accepting(kept, this.#place, accept, chunk.bytes, chunk.kept) !== null) return new Admission(chunk, 0)
    }
  }

  /** @internal The number under which the policy knows it as one before another. */
  before(policy: PolicyCore): number {
    return policy.keepBefore(this.#chunk.kept, this.#place)
  }

  get #place(): number {
    return this.#number(ADMISSION.place)
  }

  #number(place: number): number {
    return this.#chunk.numbers[this.#at + place]!
  }

  /** Where the values of the fields begin: behind all numbers. */
  #textAt(count: number): number {
    return (this.#at + ADMISSION.numbers + 2 * count + 2) * 8
  }

  #valuesLength(count: number): number {
    let length = 0
    for (let field = 0; field < count; field++) length += this.#number(ADMISSION.numbers + 2 * field + 1)
    return length
  }

  /** The body, and the name of the route: behind the values of the fields. */
  #text(which: 0 | 1): string | null {
    const count = this.#number(ADMISSION.fields)
    const lengths = ADMISSION.numbers + 2 * count
    const length = this.#number(lengths + which)
    if (length < 0) return null
    let at = this.#textAt(count) + this.#valuesLength(count)
    if (which === 1) at += Math.max(this.#number(lengths), 0)
    return this.#chunk.text(at, length)
  }

  #read(): Decision[] {
    const { kept } = this.#chunk
    let size = DECISIONS
    let chunk = new Chunk(size)
    let end = kept.decisions(this.#place, chunk.bytes)
    while (end === null) {
      chunk = new Chunk((size *= 4))
      end = kept.decisions(this.#place, chunk.bytes)
    }
    const all: Decision[] = []
    for (let at = 0; at < end / 8; at += chunk.numbers[at + RECORD.length]!) all.push(new Decision(chunk, at))
    return all
  }
}

/** In bytes: most admissions have one decision. */
const DECISIONS = 1_024
