// What is right must compile, and what is marked must not. `make lint-node` compiles it as CommonJS and as bundlers do.
import {
  Limiter,
  Policy,
  TidegateError,
  type Admission,
  type Decision,
  type LimitDecision,
  type Request,
} from 'tidegate'
import { FakeClock } from 'tidegate/testing'

type Same<A, B> = (<T>() => T extends A ? 1 : 2) extends <T>() => T extends B ? 1 : 2 ? true : false
/** Compiles if both are one type. */
function same<A, B>(_: Same<A, B>): void {}

const rules = {
  login: '5/m',
  search: ['10/s burst 30', { limit: 1000, window: '1h', name: 'hourly' }],
  export: { limits: '10/h sliding_window_log', on_error: 'deny' },
} as const

export async function limiters(signal: AbortSignal): Promise<void> {
  const limiter = new Limiter({ rules, url: 'redis://127.0.0.1', prefix: 'app', deadline: 100 })
  new Limiter({ rules: { a: '1/m' } })
  new Limiter({ rules: { a: '1/m' }, deadline: '1s', clock: new FakeClock() })
  new Limiter({ document: 'tidegate.toml' })
  new Limiter({ document: 'a = 1', format: 'toml' })
  new Limiter({ document: { version: 1, rules: { a: '1/m' } } })

  const decision = await limiter.check('login', 'alice')
  same<typeof decision, Decision>(true)
  same<typeof decision.allowed, boolean>(true)
  same<typeof decision.retryAfterMs, number | null>(true)
  same<typeof decision.origin, 'store' | 'deny_cache' | 'local' | 'open' | 'closed'>(true)
  same<typeof decision.failure, TidegateError | null>(true)
  same<typeof decision.binding, LimitDecision>(true)
  await limiter.check(['login', 'search'], ['tenant', Buffer.from('alice')], { cost: 2, deadline: '1s' })
  await limiter.check('export', new Uint8Array(4), { requestId: 'job', limits: '10/m' })
  await limiter.acquire('login', 'alice', { signal, timeout: '10s' })
  same<ReturnType<typeof limiter.checkSync>, Decision>(true)
  same<ReturnType<typeof limiter.refund>, Promise<boolean>>(true)
  same<ReturnType<typeof limiter.reset>, Promise<void>>(true)
  const { total, leftMs } = await limiter.count('login', 'alice', '1m', 1)
  same<typeof total, number>(true)
  same<typeof leftMs, number>(true)
  await limiter.ready('5s')
  same<typeof limiter.rules, string[]>(true)
  limiter.close()

  // @ts-expect-error a rule is text
  await limiter.check(1, 'alice')
  // @ts-expect-error numbers are no keys: whoever has one says how it is written
  await limiter.check('login', 17)
  // @ts-expect-error nobody is no key
  await limiter.check('login', undefined)
  // @ts-expect-error there is no such option
  await limiter.check('login', 'alice', { costs: 2 })
  // @ts-expect-error it is a promise: a condition on it would always hold
  if ((await limiter.check('login', 'alice')) === true) return
  // @ts-expect-error a decision cannot be changed
  decision.allowed = true
  // @ts-expect-error nor made
  decision.limits = []
  // @ts-expect-error there is no such option
  new Limiter({ rules: { a: '1/m' }, redis: 'redis://127.0.0.1' })
  // @ts-expect-error a rule is text, an object or a list of them
  new Limiter({ rules: { a: 5 } })
}

export function codes(error: unknown): string {
  if (!(error instanceof TidegateError)) throw error
  switch (error.code) {
    case 'invalid_rule':
    case 'invalid_document':
    case 'invalid_request':
    case 'unknown_rule':
    case 'store_unavailable':
    case 'timeout':
    case 'store_refused':
    case 'unsupported_server':
    case 'corrupt_state':
    case 'invalid_receipt':
      return error.message
    default:
      return same<typeof error.code, never>(true) ?? ''
  }
}

export async function policies(): Promise<void> {
  const policy = new Policy({
    version: 1,
    store: { prefix: 'app', deadline: '100ms' },
    http: { trusted_proxies: ['10.0.0.0/8'] },
    rules: { login: '5/m' },
    routes: [{ path: '/login', methods: ['POST'], rules: 'login', key: 'ip', refund_status: '5xx' }],
  })
  const request = policy.request('POST', '/login')
  same<typeof request, Request>(true)
  same<typeof request.route, string | null>(true)
  const admission = await policy.admit(request, {
    peer: '203.0.113.7',
    headers: ['accept', 'text/plain'],
    user: null,
    values: { plan: 'free', cost: 2 },
    answers: ['staff'],
    after: null,
  })
  same<typeof admission, Admission>(true)
  same<typeof admission.status, number | null>(true)
  for (const [name, value] of admission.headers) same<[typeof name, typeof value], [string, string]>(true)
  same<ReturnType<typeof admission.settle>, Promise<boolean>>(true)
  same<typeof policy.limiter, Limiter>(true)
  Policy.watch('tidegate.toml').close()

  // @ts-expect-error the peer is text
  await policy.admit(request, { peer: 17 })
  // @ts-expect-error requests are made by policies
  await policy.admit({ route: 'login' })
}
