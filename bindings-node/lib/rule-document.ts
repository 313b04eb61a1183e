import type { Algorithm, Document, Duration, Rule } from './index.js'
import type { Store } from './store.js'

/** What to do while the store fails. */
export type OnError = 'allow' | 'deny' | 'local'

/** A rule that options make, and what else its document says. */
export interface RuleDocument {
  /** Its name, which is its bucket. */
  readonly name: string
  readonly store: Store
  /** The rule; `limitRule` makes one of a limit. */
  readonly rule: Rule
  /** Whether its key is told as `key`, and not an address that the core reads. */
  readonly isKeyed: boolean
  /** Units of a request, or that they are told as `cost`. */
  readonly cost: number | 'told'
  /** How many bits of an IPv6 address are one client, where addresses are the keys. */
  readonly subnet: number
  /** What `http` says of fields. */
  readonly fields: { readonly headers?: readonly string[] | undefined; readonly x_ratelimit_reset?: string }
  readonly refundStatus?: readonly (number | string)[] | undefined
}

/** The document of a limiter with one rule: its one route is named as the rule is. */
export function ruleDocument(said: RuleDocument): Document {
  const { name, store, rule, isKeyed, cost, subnet, fields, refundStatus } = said
  const route = {
    name,
    rules: [name],
    key: isKeyed ? 'app:key' : 'ip',
    without_identity: 'share',
    cost: cost === 'told' ? 'app:cost' : cost,
    ...(refundStatus === undefined ? {} : { refund_status: refundStatus }),
  }
  const http = { ...fields, ipv6_prefix: subnet, default: route }
  return { version: 1, store, rules: { [name]: rule }, http } as Document
}

/** A rule of one limit. */
export function limitRule(
  limit: number,
  window: Duration,
  algorithm: Algorithm | 'gcra' | undefined,
  onError: OnError | undefined,
): Rule {
  const one = { limit, window: typeof window === 'number' ? `${window}ms` : window }
  const limits = [algorithm === undefined ? one : { ...one, algorithm }]
  return onError === undefined ? { limits } : { limits, on_error: onError }
}
