// What the tests of Fastify, Koa, Hono and Nest share: a document, and a policy that stands on a clock.
import { Policy } from 'tidegate'
import { FakeClock } from 'tidegate/testing'

/** Routes that tell what a framework hands over: the path, the address behind a proxy, and the user. */
export const ROUTES = {
  version: 1,
  rules: { login: '1/m', api: '3/m' },
  http: { trusted_proxies: ['loopback'] },
  routes: [
    { name: 'login', path: '/login', methods: ['POST'], rules: 'login', key: 'ip' },
    { name: 'api', prefix: '/api', rules: 'api', key: 'user', without_identity: 'refuse', refund_status: '5xx' },
  ],
}

const NOTHING = { version: 1, rules: { none: '1/s' }, http: { default: { rules: [] } } }

/** A policy in memory, on a clock; limiters of options stand beside it. */
export function standing(t, document = NOTHING) {
  const clock = new FakeClock()
  const policy = new Policy(document, { clock })
  t.after(() => policy.close())
  return { clock, policy }
}

/** Requests whose client is told by a header, since all tests come from one address. */
export function from(name, headers = {}) {
  return { headers: { 'x-from': name, ...headers } }
}

/** A login from an address that a trusted proxy tells. */
export function login(address) {
  return { method: 'POST', path: '/login', headers: { 'x-forwarded-for': address } }
}
