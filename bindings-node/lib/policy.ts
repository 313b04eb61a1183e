import { Requests, type Told } from './admit.js'
import { Request, type Admission } from './admission.js'
import { ofDocument, refuseOthers, type Format } from './document.js'
import { milliseconds, type Duration } from './duration.js'
import { calling } from './errors.js'
import { limiterOf, type Limiter } from './limiter.js'
import { heard, loop } from './loop.js'
import { PolicyCore, type Clock } from './native.js'
import type { Document, PolicyMetrics } from './types.js'

/** What a policy may be told beside its document. */
export interface PolicyOptions {
  /** Where the document is text. */
  format?: Format | undefined
  /** In memory, on this clock. */
  clock?: Clock | undefined
}

const READY = 5_000

/**
 * The routes of a document at work: whether a request may pass, and what its response is to have.
 *
 * ```js
 * const policy = new Policy('tidegate.toml')
 * const request = policy.request('POST', '/login')
 * const admission = await policy.admit(request, { peer: '203.0.113.7' })
 * if (!admission.allowed) console.log(admission.status, admission.headers, admission.body)
 * ```
 */
export class Policy {
  readonly #core: PolicyCore
  readonly #requests: Requests

  /**
   * @param document an object, the path of a file, or with a `format` text
   * @throws TidegateError `invalid_document` or `invalid_rule`, with what to write instead. No server is asked yet.
   */
  constructor(document: Document | string, options: PolicyOptions = {}) {
    const { format, clock, ...rest } = options
    refuseOthers(rest, 'format and clock')
    const core = made.get(options) ?? heard(() => calling(() => new PolicyCore(...ofDocument(document, format), clock)))
    this.#core = core
    this.#requests = new Requests(core)
  }

  /** The policy of a file, which is read again when it changes; a document that is refused changes nothing. */
  static watch(path: string): Policy {
    return policyOf(heard(() => calling(() => PolicyCore.watch(path))))
  }

  /**
   * Takes another document from the next request on. State and connections stay where its store stays.
   * @throws TidegateError as the constructor; the old document stays.
   */
  reload(document: Document | string, format?: Format): void {
    calling(() => this.#core.reload(...ofDocument(document, format)))
  }

  /**
   * A policy of other rules and routes on the same store: it shares connections and state, so that a rule and a key are one
   * bucket in both.
   * @throws TidegateError `invalid_document` for another store; as the constructor.
   */
  beside(document: Document | string, format?: Format): Policy {
    return policyOf(calling(() => this.#core.beside(...ofDocument(document, format))))
  }

  /** The limiter of its rules, as they are now. */
  get limiter(): Limiter {
    return limiterOf(calling(() => this.#core.limiter()))
  }

  /** The names of its routes, in their order. */
  get routes(): string[] {
    return calling(() => this.#core.routes)
  }

  /** The request headers that any of its routes needs, in lower case. */
  get needsHeaders(): string[] {
    return calling(() => this.#core.needsHeaders)
  }

  /** A request, by its method and its path as on the wire, without the query: that chooses its route. */
  request(method: string, path: string): Request {
    return new Request(
      this.#core,
      calling(() => this.#core.request(method, path)),
    )
  }

  /**
   * A request whose route is named.
   * @throws TidegateError `invalid_request` if there is none of this name.
   */
  named(method: string, route: string): Request {
    return new Request(
      this.#core,
      calling(() => this.#core.named(method, route)),
    )
  }

  /**
   * Decides whether a request may pass, and charges it. A refusal does not reject, nor does a store that fails: each rule's
   * `on_error` decides, by the deadline. A cost that the application did not supply does, with `invalid_request`.
   */
  admit(request: Request, told?: Told): Promise<Admission> {
    return this.#requests.add(request, told)
  }

  /** Waits until the store can be used, at most 5 s unless said; rejects with why it cannot. */
  ready(timeout: Duration = READY): Promise<void> {
    return loop().call((queue, ticket) => this.#core.ready(queue, ticket, milliseconds(timeout, 'timeout')))
  }

  /** What has been counted since it was made. */
  metrics(): PolicyMetrics {
    return JSON.parse(calling(() => this.#core.metrics())) as PolicyMetrics
  }

  /** The same as Prometheus scrapes it. */
  prometheus(): string {
    return calling(() => this.#core.prometheus())
  }

  /** Lets go of it, and of its connections where no other policy or limiter has them. */
  close(): void {
    this.#core.close()
    loop().letGo()
  }

  /** The same as `close`, for `await using`. */
  async [Symbol.asyncDispose](): Promise<void> {
    this.close()
  }
}

/** What policies are made of that are not made of documents. */
const made = new WeakMap<object, PolicyCore>()

function policyOf(core: PolicyCore): Policy {
  const options = {}
  made.set(options, core)
  return new Policy('', options)
}
