// Hono on @hono/node-server over sockets.
import assert from 'node:assert/strict'
import { once } from 'node:events'
import { test } from 'node:test'
import { serve as serveHono } from '@hono/node-server'
import { Hono } from 'hono'
import { HTTPException } from 'hono/http-exception'
import { admissionOf, rateLimit } from 'tidegate/hono'

import { send, sends, statuses, until } from './support/express.mjs'
import { from, login, ROUTES, standing } from './support/frameworks.mjs'
import { prefix, shared } from './support/servers.mjs'

const redis = await shared('server')

/** Serves an application until the test ends; returns where. */
async function serve(t, app) {
  const server = serveHono({ fetch: app.fetch, hostname: '127.0.0.1', port: 0 })
  if (!server.listening) await once(server, 'listening')
  t.after(async () => {
    server.closeAllConnections()
    await new Promise((resolve) => server.close(resolve))
  })
  return { host: '127.0.0.1', port: server.address().port }
}

/** An application that answers with how its limit stands, behind these limiters. */
function app(t, ...middleware) {
  const app = new Hono()
  for (const one of middleware) app.use(one)
  app.onError((error, c) => {
    if (error instanceof HTTPException) return error.getResponse()
    return c.text(`${error.code ?? error.name}: ${error.message}`, 500)
  })
  app.all('*', (c) => c.json(c.get('rateLimit') ?? 'hello'))
  return serve(t, app)
}

test('a limit of options: figures, fields, a refusal, and the next window', async (t) => {
  const { clock, policy } = standing(t)
  const where = await app(t, rateLimit({ limit: 2, windowMs: '1m', policy }))
  const [first, second, third] = await sends(where, 3)
  assert.deepEqual([first.status, second.status, third.status], [200, 200, 429])
  assert.equal(first.headers['ratelimit-limit'], '2')
  assert.equal(first.headers['ratelimit-remaining'], '1')
  assert.equal(first.headers['x-ratelimit-limit'], undefined)
  const { limit, used, remaining, key } = JSON.parse(first.body)
  assert.deepEqual({ limit, used, remaining, key }, { limit: 2, used: 1, remaining: 1, key: '127.0.0.1' })
  assert.equal(third.headers['retry-after'], '60')
  assert.equal(third.headers['content-type'], 'application/problem+json')
  assert.equal(third.headers['vary'], 'Accept')
  assert.equal(JSON.parse(third.body).status, 429)
  const text = await send(where, { headers: { accept: 'text/html' } })
  assert.match(text.body, /^Too many requests\./)
  clock.advance('1m')
  assert.equal((await send(where)).status, 200)
})

test('standardHeaders, and another name for the figures', async (t) => {
  const { policy } = standing(t)
  for (const [standardHeaders, name, value] of [
    [true, 'ratelimit-limit', '5'],
    ['draft-7', 'ratelimit', /^limit=5, remaining=4/],
    ['draft-8', 'ratelimit', /^"draft-8";r=4/],
    [false, 'ratelimit-policy', undefined],
  ]) {
    const limiter = rateLimit({
      limit: 5,
      policy,
      standardHeaders,
      name: String(standardHeaders),
      requestPropertyName: 'mine',
    })
    const answer = await send(await app(t, limiter))
    assert.equal(answer.body, '"hello"')
    if (value instanceof RegExp) assert.match(answer.headers[name], value)
    else assert.equal(answer.headers[name], value)
  }
})

test('keyGenerator, skip, a limit and a cost that are functions', async (t) => {
  const { policy } = standing(t)
  const limiter = rateLimit({
    keyGenerator: (c) => c.req.header('x-from'),
    skip: async (c) => c.req.header('x-from') === 'friend',
    limit: async (c) => (c.req.header('x-from') === 'rich' ? 4 : 2),
    cost: (c) => Number(c.req.header('x-cost') ?? 1),
    policy,
  })
  const where = await app(t, limiter)
  assert.deepEqual(await statuses(where, 3, from('poor')), [200, 200, 429])
  assert.deepEqual(await statuses(where, 5, from('rich')), [200, 200, 200, 200, 429])
  assert.deepEqual(await statuses(where, 3, from('friend')), [200, 200, 200])
  assert.deepEqual(await statuses(where, 2, from('dear', { 'x-cost': '2' })), [200, 429])
  const never = await app(t, rateLimit({ limit: () => 2, cost: 3, policy, name: 'never' }))
  assert.deepEqual(await statuses(never, 1), [429])
})

test('message, statusCode and handler answer refusals', async (t) => {
  const { policy } = standing(t)
  const refusing = (name, options) => app(t, rateLimit({ limit: 0, policy, name, ...options }))
  const text = await send(await refusing('text', { message: 'Slow', statusCode: 420 }))
  assert.deepEqual([text.status, text.body, text.headers['ratelimit-policy']], [420, 'Slow', '0;w=60'])
  const json = await send(await refusing('json', { message: async () => ({ slow: true }) }))
  assert.deepEqual([json.status, json.body], [429, '{"slow":true}'])
  assert.match(json.headers['content-type'], /^application\/json/)
  const status = await send(await refusing('status', { statusCode: 420 }))
  assert.deepEqual([status.status, status.headers['content-type']], [420, 'application/problem+json'])
  const handled = await send(await refusing('handler', { handler: (c) => c.text('mine', 418) }))
  assert.deepEqual([handled.status, handled.body], [418, 'mine'])
  const passed = await send(await refusing('passing', { handler: (_, next) => next() }))
  assert.equal(passed.status, 200)
})

test('what does not count is given back', async (t) => {
  const { policy } = standing(t)
  const failing = async (c, next) => {
    const status = Number(c.req.header('x-status') ?? 200)
    if (status >= 400) throw new HTTPException(status)
    await next()
  }
  const spared = { limit: 2, policy, keyGenerator: () => 'all' }
  const left = async (name) => (await policy.beside(NAMED(name)).limiter.peek(name, ['app', 'key', 'all'])).remaining
  const failed = await app(t, rateLimit({ ...spared, name: 'failed', skipFailedRequests: true }), failing)
  for (let times = 0; times < 4; times++) {
    const answer = await send(failed, { headers: { 'x-status': '503' } })
    assert.deepEqual([answer.status, answer.headers['ratelimit-limit']], [503, '2'])
    await until(async () => (await left('failed')) === 2)
  }
  assert.deepEqual(await statuses(failed, 3), [200, 200, 429])
  const requestWasSuccessful = async (c) => c.res.headers.get('content-type') !== null
  const other = rateLimit({ ...spared, name: 'other', skipSuccessfulRequests: true, requestWasSuccessful })
  const successful = await app(t, other, failing)
  for (let times = 0; times < 4; times++) {
    assert.equal((await send(successful)).status, 200)
    await until(async () => (await left('other')) === 2)
  }
})

const NAMED = (name) => ({ version: 1, rules: { [name]: '2/60s' }, http: { default: { rules: [] } } })

test('the routes of a document, by its trusted proxies and the user', async (t) => {
  const { policy } = standing(t, ROUTES)
  const where = await app(t, rateLimit({ policy, user: async (c) => c.req.header('x-from') }))
  assert.deepEqual(await statuses(where, 2, login('203.0.113.1')), [200, 429])
  assert.deepEqual(await statuses(where, 1, login('203.0.113.2')), [200])
  // What Hono takes for /login is limited as /login.
  for (const path of ['/login?x=1', '/%6Cogin', '/a/../login', 'http://127.0.0.1/login', '/login#x']) {
    assert.equal((await send(where, { ...login('203.0.113.1'), path })).status, 429, path)
  }
  assert.deepEqual(await statuses(where, 4, { path: '/api/x', ...from('ada') }), [200, 200, 200, 429])
  assert.equal((await send(where, { path: '/api/x' })).status, 403)
  assert.deepEqual(await statuses(where, 3, { path: '/free' }), [200, 200, 200])
})

test('what refund_status says is given back, and a route may be named', async (t) => {
  const { policy } = standing(t, ROUTES)
  const broken = () => Promise.reject(new HTTPException(503))
  const where = await app(t, rateLimit({ policy, route: 'api', user: () => 'ada' }), broken)
  for (let times = 0; times < 5; times++) {
    const answer = await send(where, { path: '/anywhere' })
    assert.deepEqual([answer.status, answer.headers['x-ratelimit-remaining']], [503, '2'])
    // It is given back once the response is there, so a moment later.
    await until(async () => (await policy.limiter.peek('api', ['user', 'ada'])).remaining === 3)
  }
})

test('limiters that stand one inside of the other charge a rule once, and fields of the application stay', async (t) => {
  const { policy } = standing(t, ROUTES)
  const own = async (c, next) => {
    await next()
    c.header('X-Own', 'mine')
  }
  const before = async (c, next) => {
    c.header('X-RateLimit-Reset', 'mine')
    await next()
  }
  const routes = () => rateLimit({ policy, user: () => 'ada' })
  const seen = []
  const look = async (c, next) => {
    seen.push(admissionOf(c).decisions.length)
    await next()
  }
  const options = rateLimit({ limit: 2, policy, standardHeaders: 'draft-8' })
  const where = await app(t, own, before, routes(), routes(), look, options, look)
  const answer = await send(where, { path: '/api/x' })
  assert.equal(answer.headers['x-own'], 'mine')
  assert.equal(answer.headers['x-ratelimit-reset'], 'mine')
  assert.equal(answer.headers['x-ratelimit-limit'], '3')
  assert.match(answer.headers['ratelimit'], /"api";r=2.*"hono";r=1/)
  assert.deepEqual(seen, [1, 2])
})

test('what functions throw goes to onError, and so does a request without a socket', async (t) => {
  const { policy } = standing(t)
  const broken = rateLimit({
    policy,
    limit: 5,
    keyGenerator: () => {
      throw new TypeError('no key')
    },
  })
  const answer = await send(await app(t, broken))
  assert.deepEqual([answer.status, answer.body], [500, 'TypeError: no key'])
  const cost = rateLimit({ policy, limit: 5, name: 'cost', cost: () => -1 })
  assert.match((await send(await app(t, cost))).body, /^invalid_request: cost has given -1 /)

  const offline = new Hono()
  offline.onError((error, c) => c.text(error.code, 500))
  offline.get('/address', rateLimit({ policy, limit: 5, name: 'address' }), (c) => c.text('hello'))
  offline.get('/routes', rateLimit({ policy: ROUTES }), (c) => c.text('hello'))
  offline.get('/key', rateLimit({ policy, name: 'key', limit: 1, keyGenerator: () => 'all' }), (c) => c.text('hello'))
  assert.equal(await (await offline.request('/address')).text(), 'ERR_TIDEGATE_NO_SOCKET')
  assert.equal(await (await offline.request('/routes')).text(), 'ERR_TIDEGATE_NO_SOCKET')
  assert.deepEqual([(await offline.request('/key')).status, (await offline.request('/key')).status], [200, 429])
})

test('two limiters on one Redis share a bucket by the name of their rule', async (t) => {
  const shared = { limit: 3, windowMs: '1h', url: redis.url, prefix: prefix(), name: 'both', deadline: '10s' }
  const limiters = [rateLimit(shared), rateLimit(shared)]
  t.after(() => limiters.forEach((limiter) => limiter.close()))
  const [one, other] = [await app(t, limiters[0]), await app(t, limiters[1])]
  assert.deepEqual(await statuses(one, 2), [200, 200])
  assert.deepEqual(await statuses(other, 2), [200, 429])
  assert.deepEqual(await statuses(one, 1), [429])
})

test('a store that is down: onError decides', async (t) => {
  const down = { url: 'redis://127.0.0.1:1', prefix: prefix(), deadline: '200ms', limit: 1 }
  const limiters = ['allow', 'deny', 'local'].map((onError) => rateLimit({ ...down, onError, name: onError }))
  t.after(() => limiters.forEach((limiter) => limiter.close()))
  const [open, closed, local] = await Promise.all(limiters.map((limiter) => app(t, limiter)))
  assert.deepEqual(await statuses(open, 2), [200, 200])
  assert.deepEqual(await statuses(closed, 2), [503, 503])
  assert.deepEqual(await statuses(local, 2), [200, 429])
})

test('two limiters on one store without a name are told to have one', (t) => {
  const told = []
  t.mock.method(console, 'warn', (error) => told.push(error.code))
  const { policy } = standing(t)
  rateLimit({ policy, limit: 5 })
  rateLimit({ policy, limit: 5, name: 'other' })
  rateLimit({ policy, limit: 5, name: 'other' })
  assert.deepEqual(told, [])
  rateLimit({ policy, limit: 100 })
  assert.deepEqual(told, ['ERR_TIDEGATE_SHARED_NAME'])
})

test('options that cannot work say what to write', () => {
  for (const [options, code, hint] of [
    ['5/m', 'ERR_TIDEGATE_TYPE', /an object/],
    [{ store: {} }, 'ERR_TIDEGATE_UNKNOWN_OPTION', /write url/],
    [{ legacyHeaders: true }, 'ERR_TIDEGATE_UNKNOWN_OPTION', /http\.headers/],
    [{ windowMS: 5 }, 'ERR_TIDEGATE_UNKNOWN_OPTION', /write windowMs/],
    [{ windowMs: 0.5 }, 'ERR_TIDEGATE_WINDOW', /whole milliseconds/],
    [{ limit: NaN }, 'ERR_TIDEGATE_LIMIT', /whole number/],
    [{ keyGenerator: 'ip' }, 'ERR_TIDEGATE_TYPE', /write keyGenerator/],
    [{ policy: ROUTES, keyGenerator: () => 1 }, 'ERR_TIDEGATE_UNKNOWN_OPTION', /document/],
    [{ policy: ROUTES, limit: 5 }, 'ERR_TIDEGATE_TYPE', /write a Policy/],
    [{ policy: ROUTES, route: 'nowhere' }, 'invalid_request', /nowhere/],
    [{ standardHeaders: 'draft-9' }, 'invalid_document', /draft-10/],
  ]) {
    assert.throws(
      () => rateLimit(options),
      (error) => error.code === code && hint.test(error.message),
      JSON.stringify(options),
    )
  }
})
