import { type CustomDecorator, SetMetadata } from '@nestjs/common'

import type { Identity } from '../http.js'
import type { Algorithm, Duration, Rule } from '../index.js'
import type { OnError } from '../judge.js'
import type { Of } from './exchange.js'

/** What holds whichever way the limits are said. */
export interface Counting {
  /** Who is limited. @defaultValue the module's `key`, else the client's address, `request.ip` */
  key?: Of<Identity> | undefined
  /** Units that a request takes, from 1. @defaultValue 1 */
  cost?: number | Of<number> | undefined
  /** Statuses after which units are given back, such as `404` and `'5xx'`. @defaultValue none */
  refundStatus?: readonly (number | string)[] | undefined
}

/** A limit of the decorated handler's own, or of all handlers of the decorated controller together. */
export interface OwnLimit extends Counting {
  /** Units per `ttl`, 0 (nothing passes) to 10,000,000. */
  limit: number | Of<number>
  /** The window: milliseconds, or text such as `'1m'`; 1 ms to 366 days. */
  ttl: Duration
  /** The rule's name, which is its bucket. @defaultValue `Controller.handler`, or `Controller` */
  name?: string | undefined
  /** How the limit counts. @defaultValue `sliding_window` */
  algorithm?: Algorithm | 'gcra' | undefined
  /** What to do while the store fails. @defaultValue the module's, else `allow` */
  onError?: OnError | undefined
}

/** The same with what a document's rule may be: several limits, bursts, shadows. */
export interface OwnLimits extends Counting {
  /** Such as `'5/m; 100/h'`, a list of limits, or a rule's table. */
  limits: Rule
  /** The rule's name, which is its bucket. @defaultValue `Controller.handler`, or `Controller` */
  name?: string | undefined
}

/** A rule of the module's `rules`; all who name it share it. */
export interface NamedRule extends Counting {
  rule: string
}

/** A route of the module's policy, whatever the request's path is. */
export interface NamedRoute {
  route: string
}

/** What `@RateLimit` takes. */
export type RateLimitSetting = string | OwnLimit | OwnLimits | NamedRule | NamedRoute

export const RATE_LIMIT = 'tidegate:rate-limit'
export const SKIP_RATE_LIMIT = 'tidegate:skip-rate-limit'

/**
 * Limits a handler, or all handlers of a controller together; a handler's own stands in place of its controller's.
 * It is looked at when the application starts.
 *
 * @param setting limits as text (`'5/m'`, `'5/m; 100/h'`), or what else there is to say
 */
export function RateLimit(setting: RateLimitSetting): CustomDecorator {
  return SetMetadata(RATE_LIMIT, setting)
}

/** Leaves a handler or a controller without limits; `@SkipRateLimit(false)` limits a handler of such a controller. */
export function SkipRateLimit(skip = true): CustomDecorator {
  return SetMetadata(SKIP_RATE_LIMIT, skip)
}
