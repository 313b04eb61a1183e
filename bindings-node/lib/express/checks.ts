import { isIP } from 'node:net'

import type { Request } from 'express'

import { SetupError } from '../setup.js'

export { SetupError }

/** Where checks are told of; `console` is one. */
export interface Logger {
  error(error: unknown, message?: string): void
  warn(error: unknown, message?: string): void
}

/** The checks that can be switched off, by the names of express-rate-limit where it has them. */
export const CHECKS = [
  'ip',
  'trustProxy',
  'xForwardedForHeader',
  'forwardedHeader',
  'keyGeneratorIpFallback',
  'ipv6Subnet',
  'ipv6SubnetOrKeyGenerator',
  'knownOptions',
  'validationsConfig',
  'creationStack',
  'undefinedKey',
  'sharedName',
  'unasked',
] as const

/** A check's name. */
export type Check = (typeof CHECKS)[number]

/** Checks of express-rate-limit that have nothing to look at here: an application may go on naming them. */
const OTHERS = [
  'default',
  'positiveHits',
  'unsharedStore',
  'singleCount',
  'limit',
  'draftPolliHeaders',
  'onLimitReached',
  'headersDraftVersion',
  'headersResetTime',
  'windowMs',
] as const

/** All of them on or off, or some by their names; `default` is for those that are not named. */
export type Validate = boolean | { readonly [check in Check | (typeof OTHERS)[number]]?: boolean | undefined }

/** So many requests are looked at for what is wrong with addresses; a limiter that runs should not pay for it. */
const REQUESTS = 100

/** The checks of one limiter. Each is told once. */
export class Checks {
  private readonly told = new Set<Check>()
  private requests = REQUESTS

  constructor(
    private readonly validate: Validate,
    private readonly logger: Logger,
  ) {
    if (typeof validate === 'boolean') return
    const known: readonly string[] = [...CHECKS, ...OTHERS]
    const unknown = Object.keys(validate).find((name) => !known.includes(name))
    if (unknown === undefined) return
    const what = `validate.${unknown} is no check`
    this.report('validationsConfig', 'ERR_TIDEGATE_UNKNOWN_VALIDATION', what, `write one of ${CHECKS.join(', ')}`)
  }

  isOn(check: Check): boolean {
    if (typeof this.validate === 'boolean') return this.validate
    return this.validate[check] ?? this.validate.default ?? true
  }

  /** Tells the logger, if the check is on and has not been told. */
  report(check: Check, code: string, what: string, hint: string): void {
    if (this.told.has(check) || !this.isOn(check)) return
    this.told.add(check)
    this.logger.error(new SetupError(code, what, hint))
  }

  /** Whether a request is to be looked at. */
  looks(): boolean {
    return this.requests > 0
  }

  /** Looks at a request whose key is `req.ip`. */
  address(request: Request, ip: string | undefined): void {
    this.requests--
    if (ip === undefined || ip === '') {
      const what = 'a request has no address (req.ip): its client is gone, or the server listens on a Unix socket'
      const hint =
        "all such requests share one limit; behind a proxy on a Unix socket write app.set('trust proxy', ...)"
      this.report('ip', 'ERR_TIDEGATE_UNDEFINED_IP_ADDRESS', what, hint)
    } else if (isIP(ip) === 0) {
      const what = `req.ip is no address: ${JSON.stringify(ip)}`
      const hint = 'a port is left off, and whatever else it is shares one limit; write a keyGenerator that reads it'
      this.report('ip', 'ERR_TIDEGATE_INVALID_IP_ADDRESS', what, hint)
    }
    this.proxies(request, ip)
  }

  private proxies(request: Request, ip: string | undefined): void {
    const trust: unknown = request.app?.get('trust proxy')
    const right = "write how many proxies there are, or their networks: app.set('trust proxy', 1)"
    if (trust === true) {
      const what = "'trust proxy' is true, so every client can choose its address with a header, and has no limit"
      this.report('trustProxy', 'ERR_TIDEGATE_PERMISSIVE_TRUST_PROXY', what, right)
    }
    if (trust === false && request.headers['x-forwarded-for'] !== undefined) {
      const what =
        "a request came by a proxy (X-Forwarded-For), but 'trust proxy' is false: clients share the proxy's limit"
      this.report('xForwardedForHeader', 'ERR_TIDEGATE_UNEXPECTED_X_FORWARDED_FOR', what, right)
    }
    if (request.headers['forwarded'] !== undefined && ip === request.socket?.remoteAddress) {
      const what = 'a request came by a proxy (Forwarded), and Express does not read that header'
      const hint =
        "let the proxy set X-Forwarded-For, or use a policy with trusted_proxies and client_address = 'Forwarded'"
      this.report('forwardedHeader', 'ERR_TIDEGATE_FORWARDED_HEADER', what, hint)
    }
  }

  /** Looks at a request whose client is found by a document, which trusts nobody unless it says so. */
  documentAddress(request: Request, reads: readonly string[]): void {
    this.requests--
    if (request.headers['x-forwarded-for'] === undefined || reads.some((name) => ADDRESS_HEADERS.has(name))) return
    const what = 'a request came by a proxy (X-Forwarded-For), but the document trusts none: clients share its limit'
    const hint = "write http.trusted_proxies in the document, such as ['10.0.0.0/8']; 'trust proxy' is not read here"
    this.report('xForwardedForHeader', 'ERR_TIDEGATE_UNEXPECTED_X_FORWARDED_FOR', what, hint)
  }

  /** Looks whether the limiter is made while a request is answered. */
  creation(): void {
    if (!this.isOn('creationStack')) return
    const { stackTraceLimit } = Error
    Error.stackTraceLimit = 50
    const { stack = '' } = new Error('where this limiter is made')
    Error.stackTraceLimit = stackTraceLimit
    if (!/\bLayer\.handle(?:Request|_request| \[as handle_request\])/.test(stack) || madeInHandler) return
    madeInHandler = true
    const what = 'a limiter is made while a request is answered: a new one for each request never limits'
    const hint = 'make it once, where the application is set up, and use it in the handlers'
    this.report('creationStack', 'ERR_TIDEGATE_CREATED_IN_REQUEST_HANDLER', what, hint)
  }
}

/** Told once in a process, since each such limiter is a new one. */
let madeInHandler = false

/** What documents read addresses from, in lower case. */
const ADDRESS_HEADERS: ReadonlySet<string> = new Set([
  'x-forwarded-for',
  'forwarded',
  'x-real-ip',
  'x-client-ip',
  'true-client-ip',
  'cf-connecting-ip',
  'fastly-client-ip',
  'fly-client-ip',
  'cloudfront-viewer-address',
  'x-azure-clientip',
  'x-appengine-user-ip',
])
