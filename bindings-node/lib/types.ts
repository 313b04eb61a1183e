// What documents and metrics are made of. The core judges what is written; docs/document.md and docs/http.md say what the
// fields mean, and a test compares them with the core's schema.

import type { AdmissionOutcome } from './admission.js'
import type { Algorithm, Origin } from './decision.js'
import type { ErrorCode } from './errors.js'

/** A duration such as `"100ms"`, or a whole number of milliseconds. */
export type Wait = string | number

/** One text, or a list of them. */
export type Texts = string | readonly string[]

/** A status such as `404`, or all of a class. */
export type Status = number | '1xx' | '2xx' | '3xx' | '4xx' | '5xx'

/** When a node that fails is left alone, and for how long. */
export interface Breaker {
  readonly failures?: number
  readonly wait?: Wait
  readonly max_wait?: Wait
}

/** Certificates, as paths of PEM files. */
export interface Tls {
  readonly ca?: string | null
  readonly certificate?: string | null
  readonly key?: string | null
  readonly server_name?: string | null
}

/** How to log in to sentinels. */
export interface Sentinel {
  readonly username?: string | null
  readonly password?: string | null
  readonly password_file?: string | null
}

/** Where state lives, and how it is reached. */
export interface Store {
  readonly url?: string | null
  readonly prefix?: string
  readonly deadline?: Wait
  readonly username?: string | null
  readonly password?: string | null
  readonly password_file?: string | null
  readonly max_keys?: number
  readonly deny_cache_max?: Wait
  readonly key_secret?: string | null
  readonly key_secret_file?: string | null
  readonly breaker?: Breaker
  readonly batch_across_slots?: boolean
  readonly tls?: Tls | null
  readonly sentinel?: Sentinel
  readonly address_map?: { readonly [name: string]: string }
}

/** One limit: so many units in each window, a duration such as `"1m"`. */
export interface LimitTable {
  readonly limit: number
  readonly window: string
  readonly algorithm?: Algorithm | 'gcra' | null
  readonly burst?: number | null
  readonly precision?: string | null
  readonly name?: string | null
  readonly enforce?: boolean
}

/** A limit: a rate such as `"100/m"`, or a table. */
export type Limit = string | LimitTable

/** The limits of one rule: rates as text, or a list. */
export type Limits = string | readonly Limit[]

/** A rule with more than limits. */
export interface RuleTable {
  readonly limits: Limits
  readonly on_error?: 'allow' | 'deny' | 'local'
  readonly share?: number | null
  readonly enforce?: boolean
}

/** A rule: rates as text, a list of limits, or a table. */
export type Rule = Limits | RuleTable

/** Who passes without being counted. */
export interface Exempt {
  readonly networks?: Texts
  readonly keys?: Texts
  readonly app?: Texts
}

/** A rule with a key of its own. */
export interface RouteRule {
  readonly rule: string
  readonly key?: Texts | null
  readonly without_identity?: 'refuse' | 'share' | 'skip' | null
}

/** Requests, and the rules that they have. */
export interface Route {
  readonly rules: string | readonly (string | RouteRule)[]
  readonly name?: string | null
  readonly path?: string | null
  readonly prefix?: string | null
  readonly methods?: Texts | null
  readonly key?: Texts | null
  readonly without_identity?: 'refuse' | 'share' | 'skip' | null
  readonly cost?: number | string | { readonly [name: string]: number } | null
  readonly exempt?: Exempt
  readonly mode?: 'enforce' | 'shadow'
  readonly refund_status?: Status | readonly Status[]
}

/** What holds for all requests. */
export interface Http {
  readonly trusted_proxies?: Texts
  readonly client_address?: string | null
  readonly ipv4_prefix?: number | null
  readonly ipv6_prefix?: number | null
  readonly headers?: Texts | null
  readonly x_ratelimit_reset?: string | null
  readonly partition_key?: boolean
  readonly refusal?: string | null
  readonly exempt?: Exempt
  readonly case_sensitive?: boolean
  readonly log_keys?: boolean
  readonly default?: Route | null
}

/** A document: where state lives, which rules there are, and which requests have them. */
export interface Document {
  readonly version: 1
  readonly store?: Store
  readonly rules?: { readonly [name: string]: Rule }
  readonly http?: Http
  readonly routes?: readonly Route[]
}

/** How often a rule was answered so. */
export interface DecisionCount {
  readonly rule: string
  readonly origin: Origin
  readonly allowed: boolean
  readonly count: number
}

/** How often an error of a kind was raised, or made a failure policy decide. */
export interface ErrorCount {
  readonly kind: ErrorCode
  readonly count: number
}

/** How often something was of which size: `counts` has one more than `bounds`, for what is beyond them. */
export interface Histogram {
  readonly bounds: readonly number[]
  readonly counts: readonly number[]
  readonly sum: number
}

/** One server, as this process sees it. */
export interface NodeMetrics {
  readonly address: string
  readonly connected: boolean
  readonly breaker: 'closed' | 'half_open' | 'open'
  readonly opened: number
}

/** What a limiter has counted since it was made; `keys` is of memory alone, `latency` is in microseconds. */
export interface Metrics {
  readonly decisions: readonly DecisionCount[]
  readonly errors: readonly ErrorCount[]
  readonly deny_cache_hits: number
  readonly late_refunds: number
  readonly keys: number | null
  readonly evicted: number
  readonly latency: Histogram
  readonly batch_sizes: Histogram
  readonly nodes: readonly NodeMetrics[]
}

/** How often a route's requests came out so. */
export interface RouteCount {
  readonly route: string
  readonly is_shadow: boolean
  readonly outcome: AdmissionOutcome
  readonly count: number
}

/** What a policy has counted since it was made. */
export interface PolicyMetrics {
  readonly limiter: Metrics
  readonly requests: readonly RouteCount[]
  readonly unrouted: number
  readonly charges_returned: number
  readonly charges_lost: number
  readonly reloads: number
  readonly reloads_refused: number
}
