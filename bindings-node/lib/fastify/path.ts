import type { FastifyRequest } from 'fastify'

import { wirePath } from '../http.js'

/** Where a `;` begins the query; said in one of two places. */
interface Delimiting {
  useSemicolonDelimiter?: boolean
}

const ABSOLUTE = /^https?:\/\/.*?\//

/** The path of a request as Fastify's router takes it: rewritten, if it rewrites. */
export function pathOf({ raw: { url = '/' }, server }: Pick<FastifyRequest, 'raw' | 'server'>): string {
  // Of an absolute target the router takes what follows the first slash, even if that is in its query.
  const path = wirePath(url.startsWith('/') ? url : url.replace(ABSOLUTE, '/'))
  const { useSemicolonDelimiter, routerOptions } = server.initialConfig as Delimiting & { routerOptions?: Delimiting }
  const isCut = routerOptions?.useSemicolonDelimiter === true || useSemicolonDelimiter === true
  return isCut ? path.replace(/;.*$/, '') : path
}
