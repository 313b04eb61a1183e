import type { FastifyReply, FastifyRequest } from 'fastify'

import { type Fields, identity, setFields, setRefusal } from '../http.js'
import type { Admission, Decision, Policy } from '../index.js'
import { type Call, type Judged, OneRule, type RuleBasics } from '../judge.js'
import { checkLimit, MOST, SetupError } from '../setup.js'
import type { ErrorContext, Hook, RateLimitOptions, RouteRateLimit } from './options.js'

const MAX = 1_000
const WINDOW = 60_000

/** A rule that options make, and what they say of requests and responses. */
export class RuleLimit {
  private readonly rule: OneRule
  /** Keys that are not limited; addresses in the one spelling that they are compared in. */
  private readonly allowed: ReadonlySet<string> | null

  /** @param policy the policy of the plugin, on whose store a route's rule is */
  constructor(
    private readonly options: RateLimitOptions,
    readonly name: string,
    policy: Policy | undefined,
    warn: (error: SetupError) => void,
  ) {
    const { max = MAX, timeWindow = WINDOW, cost = 1, keyGenerator, allowList, refundStatus } = options
    this.rule = new OneRule(
      {
        name,
        limit: typeof max === 'number' ? max : MOST,
        isLimitTold: typeof max === 'function',
        window: typeof timeWindow === 'function' ? WINDOW : timeWindow,
        isKeyed: keyGenerator !== undefined,
        cost: typeof cost === 'number' ? cost : 'told',
        subnet: options.ipv6Subnet ?? 64,
        fields: fieldsNamed(options),
        refundStatus,
      },
      basicsOf(options, policy),
      warn,
    )
    this.allowed = Array.isArray(allowList) ? new Set(allowList.map((key) => this.spelled(key))) : null
  }

  get hook(): Hook | undefined {
    return this.options.hook
  }

  get policy(): Policy {
    return this.rule.policy
  }

  get isNameTaken(): boolean {
    return this.rule.isNameTaken
  }

  /** What two rules of one name must have in common. */
  get budget(): string {
    const { max = MAX, timeWindow = WINDOW, algorithm = 'sliding_window', keyGenerator } = this.options
    const said = (value: unknown) => (typeof value === 'function' ? 'a function' : String(value))
    const keys = keyGenerator === undefined ? 'addresses' : 'a keyGenerator'
    return `max ${said(max)}, timeWindow ${said(timeWindow)}, algorithm ${algorithm} and ${keys}`
  }

  /** Null where the request is not limited. */
  async judge(request: FastifyRequest): Promise<Judged | null> {
    const { max, timeWindow, cost, keyGenerator, allowList } = this.options
    const call: Call = { ip: request.ip }
    if (keyGenerator !== undefined) call.key = await keyGenerator(request)
    const asked = typeof allowList === 'function' || typeof max === 'function' || typeof timeWindow === 'function'
    const key = asked || this.allowed !== null ? this.keyOf(call) : ''
    if (this.allowed !== null && this.allowed.has(key)) return null
    if (typeof allowList === 'function' && (await allowList(request, key))) return null
    if (typeof max === 'function') {
      call.limit = await max(request, key)
      checkLimit('what max has given', call.limit)
    }
    if (typeof timeWindow === 'function') call.window = await timeWindow(request, key)
    if (typeof cost === 'function') call.cost = await cost(request)
    return this.rule.judge(call, request.raw)
  }

  private keyOf(call: Call): string {
    if (this.options.keyGenerator === undefined) return this.spelled(call.ip ?? '')
    const key = identity(call.key)
    return key instanceof Uint8Array ? Buffer.from(key).toString() : String(key ?? '')
  }

  private spelled(key: string): string {
    return (this.options.keyGenerator === undefined && this.rule.addressOf(key)) || key
  }

  /** Tells the application and the response of a request that passes. */
  passed(request: FastifyRequest, reply: FastifyReply, judged: Judged, before: Admission | undefined): void {
    setFields(fieldsOf(reply, this.options.addHeadersOnExceeding), judged.admission, before)
    this.options.onExceeding?.(request, judged.info?.key ?? '')
  }

  /**
   * Tells the application and the response of a refusal.
   *
   * @throws what `errorResponseBuilder` makes of it
   */
  refused(request: FastifyRequest, reply: FastifyReply, judged: Judged, before: Admission | undefined): void {
    const { admission, info } = judged
    const { errorResponseBuilder, addHeaders, onExceeded } = this.options
    const fields = fieldsOf(reply, addHeaders)
    if (admission.outcome === 'refused') {
      onExceeded?.(request, info?.key ?? '')
      if (errorResponseBuilder !== undefined) {
        setFields(fields, admission, before, false)
        throw errorResponseBuilder(request, contextOf(admission))
      }
    }
    setRefusal(fields, admission, before)
  }

  close(): void {
    this.rule.close()
  }
}

function basicsOf(options: RateLimitOptions, policy: Policy | undefined): RuleBasics {
  const { algorithm, onError, url, deadline, clock, nameSpace, prefix = nameSpace } = options
  return { algorithm, onError, url, prefix, deadline, clock, policy: policy ?? options.policy }
}

function fieldsNamed({ headers, enableDraftSpec }: RouteRateLimit) {
  const chosen = headers ?? [enableDraftSpec === true ? 'draft-6' : 'x-ratelimit']
  // Seconds from now, as @fastify/rate-limit has it.
  return chosen.includes('x-ratelimit') ? { headers: chosen, x_ratelimit_reset: 'delta' } : { headers: chosen }
}

/** The fields of a reply. @param chosen those that are `false` are not set */
export function fieldsOf(reply: FastifyReply, chosen?: Readonly<Record<string, boolean>>): Fields {
  const isLeft = (name: string) => chosen !== undefined && chosen[name.toLowerCase()] === false
  return {
    getHeader: (name) => reply.getHeader(name),
    setHeader: (name, value) => isLeft(name) || reply.header(name, value),
    removeHeader: (name) => reply.removeHeader(name),
  }
}

function contextOf(admission: Admission): ErrorContext {
  const { limit, retryAfterMs } = refusing(admission.decisions)
  const ttl = retryAfterMs ?? 0
  return { statusCode: 429, ban: false, max: limit, ttl, after: inWords(ttl) }
}

function refusing(decisions: readonly Decision[]): Decision {
  return decisions.find(({ allowed }) => !allowed) ?? decisions[0]!
}

const UNITS = [
  [86_400_000, 'day'],
  [3_600_000, 'hour'],
  [60_000, 'minute'],
] as const

/** A time in whole units of one size, rounded up, such as `2 minutes`. */
function inWords(ms: number): string {
  const [size, unit] = UNITS.find(([size]) => ms >= size) ?? [1_000, 'second']
  const count = Math.ceil(ms / size)
  return `${count} ${unit}${count === 1 ? '' : 's'}`
}
