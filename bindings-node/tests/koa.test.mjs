// Koa 2 and 3 over sockets.
import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import Koa3 from 'koa'
import Koa2 from 'koa2'
import { admissionOf, rateLimit } from 'tidegate/koa'

import { send, sends, serve, statuses, until } from './support/express.mjs'
import { from, login, ROUTES, standing } from './support/frameworks.mjs'
import { prefix, shared } from './support/servers.mjs'

const VERSIONS = { 'Koa 2': Koa2, 'Koa 3': Koa3 }
const redis = await shared('server')

for (const [version, Koa] of Object.entries(VERSIONS)) {
  /** An application that answers with what it is told to, behind these limiters. */
  const app = (t, ...middleware) => {
    const app = new Koa()
    app.silent = true
    for (const one of middleware) app.use(one)
    app.use((ctx) => {
      ctx.body = ctx.state.rateLimit ?? 'hello'
    })
    return serve(t, app.callback())
  }

  describe(version, () => {
    test('a limit of options: figures, fields, a refusal, and the next window', async (t) => {
      const { clock, policy } = standing(t)
      const where = await app(t, rateLimit({ max: 2, duration: '1m', policy }))
      const [first, second, third] = await sends(where, 3)
      assert.deepEqual([first.status, second.status, third.status], [200, 200, 429])
      assert.equal(first.headers['x-ratelimit-limit'], '2')
      assert.equal(first.headers['x-ratelimit-remaining'], '1')
      const { limit, used, remaining, key } = JSON.parse(first.body)
      assert.deepEqual({ limit, used, remaining, key }, { limit: 2, used: 1, remaining: 1, key: '127.0.0.1' })
      assert.equal(third.headers['retry-after'], '60')
      assert.equal(third.headers['content-type'], 'application/problem+json')
      assert.equal(JSON.parse(third.body).status, 429)
      clock.advance('1m')
      assert.equal((await send(where)).status, 200)
    })

    test('id, whitelist, blacklist, a max and a cost that are functions', async (t) => {
      const { policy } = standing(t)
      const limiter = rateLimit({
        max: async (ctx) => (ctx.get('x-from') === 'rich' ? 4 : 2),
        cost: (ctx) => Number(ctx.get('x-cost') || 1),
        id: (ctx) => (ctx.get('x-from') === 'free' ? false : ctx.get('x-from')),
        whitelist: async (ctx) => ctx.get('x-from') === 'friend',
        blacklist: (ctx) => ctx.get('x-from') === 'foe',
        policy,
      })
      const where = await app(t, limiter)
      assert.deepEqual(await statuses(where, 3, from('poor')), [200, 200, 429])
      assert.deepEqual(await statuses(where, 5, from('rich')), [200, 200, 200, 200, 429])
      assert.deepEqual(await statuses(where, 3, from('free')), [200, 200, 200])
      assert.deepEqual(await statuses(where, 3, from('friend')), [200, 200, 200])
      assert.deepEqual(await statuses(where, 1, from('foe')), [403])
      const dear = from('dear', { 'x-cost': '2' })
      assert.deepEqual(await statuses(where, 2, dear), [200, 429])
      const never = await app(t, rateLimit({ max: () => 2, cost: 3, policy, name: 'never' }))
      assert.deepEqual(await statuses(never, 1), [429])
    })

    test('throw, errorMessage, status, onLimited and no headers', async (t) => {
      const { policy } = standing(t)
      const told = []
      const limited = { max: 0, policy, onLimited: (ctx) => told.push(ctx.path) }
      const errors = []
      const catching = async (ctx, next) => {
        await next().catch((error) => {
          errors.push([error.status, error.headers['Retry-After'] ?? error.headers['retry-after'], error.message])
          throw error
        })
      }
      const thrown = await app(
        t,
        catching,
        rateLimit({ ...limited, name: 'thrown', throw: true, errorMessage: 'Slow' }),
      )
      const answer = await send(thrown, { path: '/thrown' })
      assert.deepEqual([answer.status, answer.body, answer.headers['x-ratelimit-limit']], [429, 'Slow', '0'])
      assert.deepEqual(errors, [[429, undefined, 'Slow']])
      const said = await app(
        t,
        rateLimit({ ...limited, name: 'said', errorMessage: { slow: true }, status: 420, disableHeader: true }),
      )
      const other = await send(said, { path: '/said' })
      assert.deepEqual([other.status, other.body], [420, '{"slow":true}'])
      assert.equal(other.headers['x-ratelimit-limit'], undefined)
      assert.match(other.headers['content-type'], /^application\/json/)
      assert.deepEqual(told, ['/thrown', '/said'])
    })

    test('the address is ctx.ip, so app.proxy decides', async (t) => {
      const { policy } = standing(t)
      for (const [proxy, expected] of [
        [true, [200, 200, 429]],
        [false, [200, 429, 429]],
      ]) {
        const server = new Koa()
        server.proxy = proxy
        server.use(rateLimit({ max: 1, name: `proxy-${proxy}`, policy })).use((ctx) => (ctx.body = 'hello'))
        const where = await serve(t, server.callback())
        const by = (address) => send(where, { headers: { 'x-forwarded-for': address } })
        const answers = [await by('203.0.113.1'), await by('203.0.113.2'), await by('203.0.113.2')]
        assert.deepEqual(
          answers.map(({ status }) => status),
          expected,
        )
      }
    })

    test('the routes of a document, by its trusted proxies and the user', async (t) => {
      const { policy } = standing(t, ROUTES)
      const user = async (ctx) => ctx.get('x-from')
      const where = await app(t, rateLimit({ policy, user }))
      assert.deepEqual(await statuses(where, 2, login('203.0.113.1')), [200, 429])
      assert.deepEqual(await statuses(where, 1, login('203.0.113.2')), [200])
      // What Koa's router takes for /login is limited as /login.
      for (const path of ['/login?x=1', '/LOGIN', '/%6Cogin', 'http://elsewhere.example/login', '/login#x']) {
        assert.equal((await send(where, { ...login('203.0.113.1'), path })).status, 429, path)
      }
      assert.deepEqual(await statuses(where, 4, { path: '/api/x', ...from('ada') }), [200, 200, 200, 429])
      const nobody = await send(where, { path: '/api/x' })
      assert.equal(nobody.status, 403)
      assert.deepEqual(await statuses(where, 3, { path: '/free' }), [200, 200, 200])
    })

    test('what refund_status says is given back, and errors keep the fields', async (t) => {
      const { policy } = standing(t, ROUTES)
      const failing = (ctx, next) => (ctx.path === '/api/broken' ? ctx.throw(503) : next())
      const where = await app(t, rateLimit({ policy, user: () => 'ada' }), failing)
      for (let times = 0; times < 5; times++) {
        const answer = await send(where, { path: '/api/broken' })
        assert.deepEqual([answer.status, answer.headers['x-ratelimit-remaining']], [503, '2'])
        // It is given back once the response is there, so a moment later.
        await until(async () => (await policy.limiter.peek('api', ['user', 'ada'])).remaining === 3)
      }
    })

    test('limiters that stand one inside of the other charge a rule once, and fields of the application stay', async (t) => {
      const { policy } = standing(t, ROUTES)
      const own = async (ctx, next) => {
        ctx.set('X-RateLimit-Reset', 'mine')
        await next()
      }
      const routes = rateLimit({ policy, user: () => 'ada' })
      const seen = []
      const look = (ctx, next) => {
        seen.push(admissionOf(ctx).decisions.length)
        return next()
      }
      const options = rateLimit({ max: 2, policy, headers: ['x-ratelimit', 'draft-10'] })
      const where = await app(t, own, routes, routes, look, options, look)
      const answer = await send(where, { path: '/api/x' })
      assert.equal(answer.headers['x-ratelimit-reset'], 'mine')
      assert.equal(answer.headers['x-ratelimit-limit'], '2')
      assert.match(answer.headers['ratelimit'], /"api";r=2.*"koa";r=1/)
      assert.deepEqual(seen, [1, 2])
    })

    test('what functions throw goes to Koa, and so does a cost that is none', async (t) => {
      const { policy } = standing(t)
      const broken = rateLimit({
        policy,
        max: 5,
        id: () => {
          throw Object.assign(new Error('no key'), { status: 418, expose: true })
        },
      })
      const answer = await send(await app(t, broken))
      assert.deepEqual([answer.status, answer.body], [418, 'no key'])
      const cost = rateLimit({ policy, max: 5, name: 'cost', cost: () => -1 })
      assert.equal((await send(await app(t, cost))).status, 500)
    })

    test('two limiters on one Redis share a bucket by the name of their rule', async (t) => {
      const shared = { max: 3, duration: '1h', url: redis.url, prefix: prefix(), name: 'both', deadline: '10s' }
      const limiters = [rateLimit(shared), rateLimit(shared)]
      t.after(() => limiters.forEach((limiter) => limiter.close()))
      const [one, other] = [await app(t, limiters[0]), await app(t, limiters[1])]
      assert.deepEqual(await statuses(one, 2), [200, 200])
      assert.deepEqual(await statuses(other, 2), [200, 429])
      assert.deepEqual(await statuses(one, 1), [429])
    })

    test('a store that is down: onError decides, within the deadline', async (t) => {
      const down = { url: 'redis://127.0.0.1:1', prefix: prefix(), deadline: '200ms', max: 1 }
      const limiters = ['allow', 'deny', 'local'].map((onError) => rateLimit({ ...down, onError, name: onError }))
      t.after(() => limiters.forEach((limiter) => limiter.close()))
      const [open, closed, local] = await Promise.all(limiters.map((limiter) => app(t, limiter)))
      assert.deepEqual(await statuses(open, 2), [200, 200])
      assert.deepEqual(await statuses(closed, 2), [503, 503])
      assert.deepEqual(await statuses(local, 2), [200, 429])
    })
  })
}

test('two limiters on one store without a name are told to have one', (t) => {
  const told = []
  t.mock.method(console, 'warn', (error) => told.push(error.code))
  const { policy } = standing(t)
  rateLimit({ policy, max: 5 })
  rateLimit({ policy, max: 5, name: 'other' })
  rateLimit({ policy, max: 5, name: 'other' })
  assert.deepEqual(told, [])
  rateLimit({ policy, max: 100 })
  assert.deepEqual(told, ['ERR_TIDEGATE_SHARED_NAME'])
})

test('options that cannot work say what to write', () => {
  for (const [options, code, hint] of [
    [5, 'ERR_TIDEGATE_TYPE', /an object/],
    [null, 'ERR_TIDEGATE_TYPE', /an object/],
    [{ db: {} }, 'ERR_TIDEGATE_UNKNOWN_OPTION', /write url/],
    [{ driver: 'memory' }, 'ERR_TIDEGATE_UNKNOWN_OPTION', /leave it out/],
    [{ durations: 5 }, 'ERR_TIDEGATE_UNKNOWN_OPTION', /write duration/],
    [{ duration: 0 }, 'ERR_TIDEGATE_WINDOW', /whole milliseconds/],
    [{ duration: '1 fortnight' }, 'invalid_rule', /./],
    [{ max: -1 }, 'ERR_TIDEGATE_LIMIT', /whole number/],
    [{ headers: { total: 'X-Total' } }, 'ERR_TIDEGATE_HEADERS', /x-ratelimit/],
    [{ id: 'ip' }, 'ERR_TIDEGATE_TYPE', /write id/],
    [{ policy: { version: 1 }, id: () => 1 }, 'ERR_TIDEGATE_UNKNOWN_OPTION', /document/],
    [{ policy: ROUTES, max: 5 }, 'ERR_TIDEGATE_TYPE', /write a Policy/],
    [{ policy: ROUTES, route: 'nowhere' }, 'invalid_request', /nowhere/],
  ]) {
    assert.throws(
      () => rateLimit(options),
      (error) => error.code === code && hint.test(error.message),
      JSON.stringify(options),
    )
  }
})
