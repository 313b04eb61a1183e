import { Decision } from './decision.js'
import { loop } from './loop.js'
import type { Admission as NativeAdmission, Request as NativeRequest } from './native.js'
import { Chunk, RECORD } from './record.js'

/** A request, and what its route needs to be told of it. One that is kept may be admitted any number of times. */
export class Request {
  /** @internal */
  readonly native: NativeRequest
  #needsHeaders: readonly string[] | undefined

  /** @internal */
  constructor(native: NativeRequest) {
    this.native = native
  }

  /** The name of its route; null if it has none. */
  get route(): string | null {
    return this.native.route
  }

  /** Whether its rules need the user: only then the session has to be looked at. */
  get needsUser(): boolean {
    return this.native.needsUser
  }

  /** The request headers that its rules need, in lower case, and `accept`, which a refusal needs. */
  get needsHeaders(): readonly string[] {
    return (this.#needsHeaders ??= this.native.needsHeaders)
  }

  /** The names of what its keys and costs need to be supplied with. */
  get needsValues(): readonly string[] {
    return this.native.needsValues
  }

  /** The questions that may exempt it. */
  get needsAnswers(): readonly string[] {
    return this.native.needsAnswers
  }

  /** The client's address: the peer's, or what trusted proxies say; null if it is not known. */
  clientAddress(
    told: { peer?: string | null | undefined; headers?: readonly string[] | undefined } = {},
  ): string | null {
    return this.native.clientAddress(told.peer, told.headers as string[] | undefined)
  }

  /** The client's address as it stands in keys: IPv6 by its prefix. */
  clientKey(told: { peer?: string | null | undefined; headers?: readonly string[] | undefined } = {}): string | null {
    return this.native.clientKey(told.peer, told.headers as string[] | undefined)
  }
}

/** What became of a request; in a shadow route what would have become of it. */
export type AdmissionOutcome =
  'allowed' | 'refused' | 'unavailable' | 'no_identity' | 'exempt' | 'unlimited' | 'invalid'

/** Whether a request may pass, and what its response is to have. */
export class Admission {
  /** @internal */
  readonly native: NativeAdmission
  /** Whether the request may pass. */
  readonly allowed: boolean
  #decisions: readonly Decision[] | undefined

  /** @internal */
  constructor(native: NativeAdmission) {
    this.native = native
    this.allowed = native.allowed
  }

  /** What became of it. */
  get outcome(): AdmissionOutcome {
    return this.native.outcome as AdmissionOutcome
  }

  /** Whether its route only reports. */
  get isShadow(): boolean {
    return this.native.isShadow
  }

  /** The name of its route; null if it has none. */
  get route(): string | null {
    return this.native.route
  }

  /** The status to answer with: 429, 503 or 403; null where the request may pass. */
  get status(): number | null {
    return this.native.status
  }

  /** The fields that the response is to have, of a refusal or of what the application answers. */
  get headers(): [name: string, value: string][] {
    const flat = this.native.headers
    return Array.from({ length: flat.length / 2 }, (_, index) => [flat[2 * index]!, flat[2 * index + 1]!])
  }

  /** The same in one list: a name, its value, a name, its value. */
  get rawHeaders(): string[] {
    return this.native.headers
  }

  /** The body of a refusal, whose type is among the headers; null where the request may pass. */
  get body(): string | null {
    return this.native.body
  }

  /** A decision for each key, those of an admission before this one first. */
  get decisions(): readonly Decision[] {
    return (this.#decisions ??= decisions(this.native))
  }

  /**
   * Gives the charge back where the route's `refund_status` has the response's status, and tells whether anything was. Once:
   * later calls do nothing. It never rejects: what cannot be given back is counted and logged.
   */
  settle(status: number): Promise<boolean> {
    return loop()
      .call<boolean>((queue, ticket) => this.native.settle(queue, ticket, status))
      .catch(() => false)
  }

  /** Gives back all that it charged, and tells whether anything was. Once. It never rejects. */
  undo(): Promise<boolean> {
    return loop()
      .call<boolean>((queue, ticket) => this.native.undo(queue, ticket))
      .catch(() => false)
  }
}

function decisions(native: NativeAdmission): Decision[] {
  let chunk = new Chunk()
  let end = native.decisions(chunk.bytes)
  while (end === null) {
    chunk = chunk.next()
    end = native.decisions(chunk.bytes)
  }
  const all: Decision[] = []
  for (let at = 0; at < end / 8; at += chunk.numbers[at + RECORD.length]!) all.push(new Decision(chunk, at))
  return all
}
