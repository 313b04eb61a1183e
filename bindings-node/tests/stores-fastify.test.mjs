import assert from 'node:assert/strict'
import { test } from 'node:test'
import rateLimit from '@fastify/rate-limit'
import Fastify from 'fastify'
import { Limiter } from 'tidegate'
import { fastifyStore } from 'tidegate/stores'
import { FakeClock } from 'tidegate/testing'
import { own, prefix } from './support/servers.mjs'
import { flood, get, numbers, places, statuses, timed, until, upTo } from './support/stores.mjs'

const PLACES = await places()
const HOUR = 3_600_000

/** An application behind @fastify/rate-limit; `routes` get what they are registered on. */
async function served(t, options, routes = {}) {
  const app = Fastify()
  await app.register(rateLimit, { max: 5, timeWindow: HOUR, ...options })
  for (const [url, rateLimit] of Object.entries({ '/': undefined, ...routes })) {
    app.get(url, rateLimit === undefined ? {} : { config: { rateLimit } }, async () => 'in')
  }
  t.after(async () => {
    await app.close()
    options.store.close()
  })
  return app.listen({ host: '127.0.0.1', port: 0 })
}

for (const place of PLACES) {
  for (const algorithm of [undefined, 'sliding_window', 'token_bucket']) {
    test(`${place.name}, ${algorithm ?? 'counting'}: of 200 at once exactly 40 pass`, async (t) => {
      const store = fastifyStore({ ...place.options(), ...(algorithm && { algorithm }) })
      const url = await served(t, { store, max: 40 })
      const answers = await flood(url, 200)
      assert.deepEqual(statuses(answers), { 200: 40, 429: 160 })
      assert.deepEqual(numbers(answers, 'x-ratelimit-remaining'), upTo(40))
      for (const { status, headers } of answers) {
        assert.equal(headers.get('x-ratelimit-limit'), '40')
        assert.equal(headers.has('retry-after'), status === 429)
      }
    })
  }

  test(`${place.name}: routes have quotas of their own, those of a group have one`, async (t) => {
    const store = fastifyStore(place.options())
    const url = await served(
      t,
      { store },
      {
        '/a': { max: 3 },
        '/b': { max: 3 },
        '/c': { max: 4, groupId: 'shop' },
        '/d': { max: 4, groupId: 'shop' },
        '/e': { max: 4, groupId: 'shops' },
        '/free': false,
      },
    )
    const found = await Promise.all(['', '/a', '/b', '/e', '/free'].map((path) => flood(url + path, 10)))
    assert.deepEqual(found.map(statuses), [
      { 200: 5, 429: 5 },
      { 200: 3, 429: 7 },
      { 200: 3, 429: 7 },
      { 200: 4, 429: 6 },
      { 200: 10 },
    ])
    const group = (await Promise.all([flood(`${url}/c`, 10), flood(`${url}/d`, 10)])).flat()
    assert.deepEqual(statuses(group), { 200: 4, 429: 16 })
  })
}

for (const place of PLACES.slice(1)) {
  test(`${place.name}: applications with one prefix share each route's quota`, async (t) => {
    const options = place.options()
    const routes = { '/a': { max: 6 }, '/g': { max: 6, groupId: 'shop' } }
    const urls = []
    for (let times = 0; times < 2; times += 1) urls.push(await served(t, { store: fastifyStore(options) }, routes))
    for (const path of ['/a', '/g']) {
      const answers = await Promise.all(urls.map((url) => flood(url + path, 10)))
      assert.deepEqual(statuses(answers.flat()), { 200: 6, 429: 14 })
    }
    const other = await served(t, { store: fastifyStore({ ...options, prefix: prefix() }) }, routes)
    assert.equal((await get(`${other}/a`)).status, 200)
  })
}

test('a window begins with the first request and does not move', async (t) => {
  const clock = new FakeClock()
  const store = fastifyStore({ clock })
  const url = await served(t, { store, max: 2, timeWindow: '1 minute' })
  assert.equal((await get(url)).headers.get('x-ratelimit-reset'), '60')
  clock.advance(45_000)
  const [, refused] = [await get(url), await get(url)]
  assert.equal(refused.headers.get('retry-after'), '15')
  clock.advance(14_999)
  assert.equal((await get(url)).status, 429)
  clock.advance(1)
  assert.equal((await get(url)).status, 200)
})

test('with an algorithm, max and timeWindow may come by request, and a refusal waits as long as it must', async (t) => {
  const clock = new FakeClock()
  const store = fastifyStore({ clock, algorithm: 'sliding_window' })
  let max = 2
  const url = await served(t, { store, max: () => max, timeWindow: () => 60_000 })
  await get(url)
  clock.advance(45_000)
  assert.equal((await get(url)).headers.get('x-ratelimit-remaining'), '0')
  assert.equal((await get(url)).headers.get('retry-after'), '15')
  max = 3
  assert.equal((await get(url)).status, 200)
  clock.advance(15_000)
  assert.equal((await get(url)).status, 200)
  assert.equal((await get(url)).status, 429)
})

test('who goes on is banned', async (t) => {
  const url = await served(t, { store: fastifyStore(), max: 2, ban: 2 })
  const found = []
  for (let times = 0; times < 6; times += 1) found.push((await get(url)).status)
  assert.deepEqual(found, [200, 200, 429, 429, 403, 403])
})

test('limiters without a route are apart, and can look without counting', async (t) => {
  for (const algorithm of [undefined, 'sliding_window']) {
    const store = fastifyStore(algorithm && { algorithm })
    const app = Fastify()
    await app.register(rateLimit, { global: false, store, timeWindow: HOUR })
    const [one, two] = [app.createRateLimit({ max: 2 }), app.createRateLimit({ max: 2 })]
    const shared = [3, 3].map((max) => app.rateLimit({ max, groupId: 'both' }))
    app.get('/', async (request) => {
      const increment = request.query.look === undefined
      const { remaining, isExceeded } = await one(request, { increment })
      return { remaining, isExceeded }
    })
    app.get('/two', async (request) => (await two(request)).remaining)
    app.get('/x', { preHandler: shared[0] }, async () => 'in')
    app.get('/y', { preHandler: shared[1] }, async () => 'in')
    t.after(() => app.close())
    const url = await app.listen({ host: '127.0.0.1', port: 0 })
    const ask = async (path) => JSON.parse((await get(url + path)).body)
    assert.deepEqual(await ask('/?look'), { remaining: 2, isExceeded: false })
    assert.deepEqual(await ask('/?look'), { remaining: 2, isExceeded: false })
    assert.deepEqual(await ask('/'), { remaining: 1, isExceeded: false })
    assert.deepEqual(await ask('/?look'), { remaining: 1, isExceeded: false })
    assert.deepEqual(await ask('/'), { remaining: 0, isExceeded: false })
    assert.deepEqual(await ask('/'), { remaining: 0, isExceeded: true })
    assert.equal(await ask('/two'), 1)
    const both = [...(await flood(`${url}/x`, 4)), ...(await flood(`${url}/y`, 4))]
    assert.deepEqual(statuses(both), { 200: 3, 429: 5 })
    store.close()
  }
})

test('what the store does not have is refused when the application starts', async () => {
  for (const [plugin, options, message] of [
    [{ continueExceeding: true }, {}, /continueExceeding is not there/],
    [{ exponentialBackoff: true }, {}, /exponentialBackoff is not there/],
    [{ ban: 1 }, { algorithm: 'token_bucket' }, /leave algorithm out/],
  ]) {
    const app = Fastify()
    const register = async () => await app.register(rateLimit, { ...plugin, store: fastifyStore(options) })
    await assert.rejects(register, { name: 'TidegateError', message })
    const route = Fastify()
    await route.register(rateLimit, { store: fastifyStore(options) })
    assert.throws(() => route.get('/', { config: { rateLimit: plugin } }, () => ''), { message })
  }
  assert.throws(() => fastifyStore({ nameSpace: 'x' }), { message: /"nameSpace" is not an option/ })
  assert.throws(() => fastifyStore({ algorithm: 'x' }), { message: /write one of/ })
})

test('routes that differ in what they are constrained to have quotas of their own', async (t) => {
  const store = fastifyStore()
  const app = Fastify()
  await app.register(rateLimit, { store, timeWindow: HOUR })
  for (const version of ['1.0.0', '2.0.0']) {
    app.get('/', { constraints: { version }, config: { rateLimit: { max: 2 } } }, async () => version)
  }
  t.after(() => app.close())
  const url = await app.listen({ host: '127.0.0.1', port: 0 })
  const ask = (version) => get(url, { headers: { 'accept-version': version } })
  const found = []
  for (const version of ['1.0.0', '1.0.0', '2.0.0', '2.0.0', '1.0.0', '2.0.0']) found.push((await ask(version)).status)
  assert.deepEqual(found, [200, 200, 200, 200, 429, 429])
  store.close()
})

test('keys may be numbers; nobody is an error', async (t) => {
  const keys = [7, 7, '7', undefined]
  const url = await served(t, { store: fastifyStore(), keyGenerator: () => keys.shift() })
  const found = [await get(url), await get(url), await get(url), await get(url)]
  assert.deepEqual(
    found.map(({ headers }) => headers.get('x-ratelimit-remaining')),
    ['4', '3', '2', null],
  )
  assert.match(found[3].body, /the key is undefined/)
})

test("a limiter of the application's stays open", async (t) => {
  const limiter = new Limiter({ rules: { api: '5/m' } })
  const store = fastifyStore({ limiter, prefix: 'web' })
  const url = await served(t, { store })
  await get(url)
  store.close()
  assert.ok((await limiter.check('api', 'alice')).allowed)
  assert.equal((await get(url)).headers.get('x-ratelimit-remaining'), '3')
  limiter.close()
})

for (const what of ['pause', 'kill']) {
  const how = what === 'pause' ? 'hangs' : 'is dead'
  test(`a server that ${how}: an answer within the deadline, by skipOnError`, async (t) => {
    const redis = await own(t, 'server')
    const hosts = []
    for (const skipOnError of [true, false]) {
      const store = fastifyStore({ url: redis.url, prefix: prefix(), deadline: 300 })
      hosts.push(await served(t, { store, skipOnError }))
    }
    for (const url of hosts) await until(async () => (await get(url)).status === 200, 'the server answers')
    await redis.do(what)
    for (const [url, status] of [
      [hosts[0], 200],
      [hosts[1], 500],
    ]) {
      const [answers, ms] = await timed(() => flood(url, 20))
      assert.deepEqual(statuses(answers), { [status]: 20 })
      assert.ok(ms < 5000, `${ms} ms`)
    }
    await redis.do(what === 'pause' ? 'resume' : 'restart')
    await until(async () => (await get(hosts[1])).status !== 500, 'it goes on when the server is back')
  })
}
