import { parse } from 'node:url'

import { wirePath } from '../http.js'

/** What Express does not take as it stands: then it asks Node's older parser, by way of `parseurl`. */
const ODD = /^[^/]|[\t\n\f\r #\u00a0\ufeff]/

/**
 * The path of a request target as Express's router takes it, which is the one that has to be limited: that parser trims
 * more than spaces, and takes `//user@host` for a host.
 *
 * @param target `request.originalUrl`
 */
export function pathOf(target: string): string {
  if (!ODD.test(target)) return wirePath(target)
  try {
    return parse(target).pathname ?? '/'
  } catch {
    // No route is found for it.
    return '/'
  }
}
