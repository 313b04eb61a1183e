import assert from 'node:assert/strict'
import { createServer } from 'node:http'
import { test } from 'node:test'
import express from 'express'
import { rateLimit } from 'express-rate-limit'
import { Limiter } from 'tidegate'
import { expressStore } from 'tidegate/stores'
import { FakeClock } from 'tidegate/testing'
import { own, prefix } from './support/servers.mjs'
import { flood, gate, get, listen, nobody, numbers, places, statuses, timed, until, upTo } from './support/stores.mjs'

const PLACES = await places()
const KEY = '127.0.0.1'
const NEVER = 3_600_000

/** An application behind express-rate-limit; `said` is what that complained of. */
async function served(t, options, handler = (request, response) => response.send('in')) {
  const said = []
  const logger = { error: (error) => said.push(error), warn: (error) => said.push(error) }
  const app = express()
  app.use(rateLimit({ windowMs: NEVER, limit: 5, logger, ...options }))
  app.get('/{*any}', handler)
  app.use((error, request, response, next) => response.status(500).send(error.code))
  t.after(() => options.store.shutdown())
  return { url: await listen(t, createServer(app)), said, store: options.store }
}

for (const place of PLACES) {
  for (const mode of [
    {},
    { limit: 40 },
    { limit: 40, algorithm: 'sliding_window_log' },
    { limit: 40, algorithm: 'token_bucket' },
  ]) {
    const how = mode.limit ? (mode.algorithm ?? 'sliding_window') : 'counting'
    test(`${place.name}, ${how}: of 200 at once exactly 40 pass, each with a number of its own`, async (t) => {
      const store = expressStore({ ...place.options(), ...mode })
      const { url, said } = await served(t, { store, limit: 40 })
      const answers = await flood(url, 200)
      assert.deepEqual(statuses(answers), { 200: 40, 429: 160 })
      assert.deepEqual(numbers(answers, 'x-ratelimit-remaining'), upTo(40))
      for (const { status, headers } of answers) {
        assert.equal(headers.get('x-ratelimit-limit'), '40')
        assert.equal(headers.has('retry-after'), status === 429)
      }
      assert.deepEqual(said, [])
    })
  }

  for (const mode of [{}, { limit: 3 }]) {
    const how = mode.limit ? 'deciding' : 'counting'
    test(`${place.name}, ${how}: what failed is given back, all of it, and nothing twice`, async (t) => {
      const store = expressStore({ ...place.options(), ...mode })
      const fails = (request, response) => response.sendStatus(request.path === '/bad' ? 500 : 200)
      const { url, said } = await served(t, { store, limit: 3, skipFailedRequests: true }, fails)
      await get(`${url}/good`)
      await Promise.all([get(`${url}/bad`), get(`${url}/bad`)])
      await until(async () => (await store.get(KEY)).totalHits === 1, 'both are given back')
      assert.deepEqual(statuses([await get(`${url}/good`), await get(`${url}/good`)]), { 200: 2 })
      assert.equal((await get(`${url}/good`)).status, 429)
      assert.deepEqual(said, [])
    })
  }
}

for (const draft of ['draft-6', 'draft-7', 'draft-8']) {
  test(`headers of ${draft} have what they need`, async (t) => {
    const { url, said } = await served(t, { store: expressStore(), standardHeaders: draft, windowMs: 60_000 })
    const { headers } = await get(url)
    const reset =
      draft === 'draft-6' ? headers.get('ratelimit-reset') : headers.get('ratelimit').match(/\b(?:reset|t)=(\d+)/)[1]
    assert.ok(Number(reset) > 30 && Number(reset) <= 60, reset)
    assert.deepEqual(said, [])
  })
}

test('a refusal waits as long as the algorithm says, and not for the window', async (t) => {
  const store = expressStore({ limit: 2, algorithm: 'token_bucket' })
  const { url } = await served(t, { store, limit: 2, windowMs: 60_000 })
  await flood(url, 2)
  const { status, headers } = await get(url)
  assert.equal(status, 429)
  const wait = Number(headers.get('retry-after'))
  assert.ok(wait > 10 && wait <= 31, String(wait))
})

for (const mode of [{}, { limit: 5 }, { limit: 5, algorithm: 'fixed_window' }]) {
  const how = mode.limit ? (mode.algorithm ?? 'sliding_window') : 'counting'
  test(`${how}: a request that fails after its window's end takes nothing from the next one`, async (t) => {
    const clock = new FakeClock()
    const store = expressStore({ clock, ...mode })
    const slow = gate()
    const handler = async (request, response) => {
      if (request.path === '/slow') await slow.opened
      response.sendStatus(request.path === '/good' ? 200 : 500)
    }
    const { url } = await served(t, { store, windowMs: 60_000, skipFailedRequests: true }, handler)
    const before = get(`${url}/slow`)
    await until(async () => (await store.get(KEY))?.totalHits === 1, 'the slow one is counted')
    clock.advance(60_000)
    assert.equal(await store.get(KEY), undefined)
    await get(`${url}/good`)
    slow.open()
    assert.equal((await before).status, 500)
    // One that fails now is given back, so that whatever the slow one gave back has come as well.
    await get(`${url}/bad`)
    await until(async () => (await store.get(KEY)).totalHits < 2, 'the second is given back')
    assert.equal((await store.get(KEY)).totalHits, 1)
  })
}

test('of many that end late, exactly those of this window that failed are given back', async (t) => {
  const clock = new FakeClock()
  const store = expressStore({ clock })
  const slow = gate()
  const handler = async (request, response) => {
    await slow.opened
    response.sendStatus(request.path === '/good' ? 200 : 500)
  }
  const { url } = await served(t, { store, limit: 100, windowMs: 60_000, skipFailedRequests: true }, handler)
  const sent = []
  for (const [good, bad] of [
    [3, 17],
    [8, 12],
  ]) {
    const paths = [...upTo(good).map(() => '/good'), ...upTo(bad).map(() => '/bad')]
    sent.push(...paths.map((path) => get(url + path)))
    await until(async () => (await store.get(KEY))?.totalHits === 20, 'all are counted')
    if (sent.length === 20) clock.advance(60_000)
  }
  slow.open()
  assert.deepEqual(statuses(await Promise.all(sent)), { 200: 11, 500: 29 })
  await until(async () => (await store.get(KEY)).totalHits <= 8, 'they are given back')
  // One more comes and goes, and so have all that came before it.
  await get(`${url}/bad`)
  await until(async () => (await store.get(KEY)).totalHits <= 8, 'this one is given back')
  assert.equal((await store.get(KEY)).totalHits, 8)
})

test('in a log, exactly the request that failed is taken out', async (t) => {
  const limiter = new Limiter({ rules: { log: '5/m sliding_window_log' } })
  t.after(() => limiter.close())
  const store = expressStore({ limiter, limit: 5, algorithm: 'sliding_window_log' })
  const slow = gate()
  const handler = async (request, response) => {
    if (request.path === '/slow') await slow.opened
    response.sendStatus(request.path === '/slow' ? 500 : 200)
  }
  const { url } = await served(t, { store, windowMs: 60_000, skipFailedRequests: true }, handler)
  const before = get(`${url}/slow`)
  const [first] = await until(async () => {
    const entries = await limiter.log('log', KEY)
    return entries.length === 1 && entries
  }, 'the slow one is charged')
  await get(url)
  slow.open()
  await before
  const left = await until(async () => {
    const entries = await limiter.log('log', KEY)
    return entries.length === 1 && entries
  }, 'one is taken out')
  assert.ok(left[0].at > first.at)
})

test('a decrement goes not below zero, makes no key and leaves the window as it is', async () => {
  const clock = new FakeClock()
  const store = expressStore({ clock, windowMs: 60_000 })
  await store.decrement('nobody')
  assert.equal(await store.get('nobody'), undefined)
  await store.increment('alice')
  clock.advance(40_000)
  for (let times = 0; times < 3; times += 1) await store.decrement('alice')
  const { totalHits, resetTime } = await store.get('alice')
  assert.equal(totalHits, 0)
  assert.ok(resetTime.getTime() - Date.now() <= 20_000)
  clock.advance(19_999)
  assert.equal((await store.get('alice')).totalHits, 0)
  clock.advance(1)
  assert.equal(await store.get('alice'), undefined)
  assert.equal((await store.increment('alice')).totalHits, 1)
})

test('of many increments at once, each is given back once', async () => {
  for (const mode of [{}, { limit: 20 }]) {
    const store = expressStore({ windowMs: 60_000, ...mode })
    await Promise.all(upTo(20).map(() => store.increment('alice')))
    await Promise.all(upTo(5).map(() => store.decrement('alice')))
    assert.equal((await store.get('alice')).totalHits, 15)
  }
})

test('a store that decides gives back nothing of a refusal, and says where there is nothing to give back', async () => {
  const store = expressStore({ windowMs: 60_000, limit: 1 })
  await store.increment('alice')
  assert.equal((await store.increment('alice')).totalHits, 2)
  await store.decrement('alice')
  assert.equal((await store.get('alice')).totalHits, 1)
  await assert.rejects(store.decrement('bob'), { code: 'invalid_request', message: /no increment of this request/ })
})

test('an increment may come before init, or after it failed', async (t) => {
  const early = expressStore()
  await assert.rejects(early.increment('alice'), { code: 'invalid_request', message: /write windowMs/ })
  early.init({ windowMs: 60_000 })
  assert.equal((await early.increment('alice')).totalHits, 1)
  assert.equal((await expressStore({ windowMs: 1000 }).increment('alice')).totalHits, 1)

  const { url, said } = await served(t, { store: expressStore(), windowMs: 0.5 })
  assert.match(said[0].message, /whole milliseconds/)
  assert.deepEqual(await get(url).then(({ status, body }) => [status, body]), [500, 'invalid_request'])
})

test("a limit that is not the host's is an error, and limits nobody by accident", async (t) => {
  const { url, said } = await served(t, { store: expressStore({ limit: 5 }), limit: 100 })
  assert.match(said[0].message, /limit is 5 in the store and 100 in the host/)
  assert.equal((await get(url)).status, 500)
  // What a function says is known only by request.
  const dynamic = await served(t, { store: expressStore({ limit: 1 }), limit: () => 1 })
  assert.deepEqual(statuses([await get(dynamic.url), await get(dynamic.url)]), { 200: 1, 429: 1 })
})

test('one store for two limiters is told apart by the host and by the store', async (t) => {
  const store = expressStore()
  await served(t, { store, windowMs: 1000 })
  const { said } = await served(t, { store, windowMs: 2000 })
  assert.equal(said[0].code, 'ERR_ERL_STORE_REUSE')
  assert.match(said[1].message, /make a store for each limiter/)
})

test('two counts of one request need prefixes of their own', async (t) => {
  for (const [second, codes] of [
    ['one', ['ERR_ERL_DOUBLE_COUNT']],
    ['two', []],
  ]) {
    const said = []
    const logger = { error: (error) => said.push(error.code), warn: () => {} }
    const app = express()
    for (const name of ['one', second]) app.use(rateLimit({ logger, store: expressStore({ prefix: name }) }))
    app.get('/', (request, response) => response.send('in'))
    assert.equal((await get(await listen(t, createServer(app)))).status, 200)
    assert.deepEqual(said, codes)
  }
})

for (const place of PLACES.slice(1)) {
  test(`${place.name}: stores with one prefix share, others do not`, async (t) => {
    const options = { ...place.options(), windowMs: NEVER }
    const stores = [options, options, { ...options, prefix: prefix() }].map(expressStore)
    t.after(() => stores.forEach((store) => store.shutdown()))
    const [one, same, other] = stores
    await one.increment('alice')
    assert.equal((await same.increment('alice')).totalHits, 2)
    assert.equal((await other.increment('alice')).totalHits, 1)
    await same.resetKey('alice')
    assert.equal(await one.get('alice'), undefined)
    assert.equal((await other.get('alice')).totalHits, 1)
    await assert.rejects(one.resetAll(), { code: 'invalid_request', message: /would scan the server/ })
  })
}

test('an own store in memory can be reset as a whole, and each key by itself', async () => {
  for (const mode of [{}, { limit: 9 }]) {
    const store = expressStore({ windowMs: NEVER, ...mode })
    await store.increment('alice')
    await store.increment('bob')
    await store.resetKey('alice')
    assert.equal(await store.get('alice'), undefined)
    assert.equal((await store.get('bob')).totalHits, 1)
    await store.resetAll()
    assert.equal(await store.get('bob'), undefined)
    assert.equal((await store.increment('bob')).totalHits, 1)
    store.shutdown()
  }
})

test("stores in a limiter of the application's: a rule and a prefix each, and it stays open", async () => {
  const limiter = new Limiter({ rules: { login: '5/m', search: '9/s' } })
  const make = (options) => expressStore({ limiter, windowMs: NEVER, ...options })
  const login = make({ rule: 'login' })
  const stores = [make({ rule: 'login' }), make({ rule: 'search' }), make({ rule: 'login', prefix: 'b' })]
  await login.increment('alice')
  const found = await Promise.all(stores.map((store) => store.increment('alice')))
  assert.deepEqual(
    found.map(({ totalHits }) => totalHits),
    [2, 1, 1],
  )
  assert.deepEqual(
    stores.map((store) => store.prefix),
    ['login', 'search', 'login:b'],
  )
  await assert.rejects(login.resetAll(), { message: /belongs to the application/ })
  login.shutdown()
  assert.ok((await limiter.check('login', 'alice')).allowed)
  limiter.close()
})

test('keys may be numbers, and must be somebody', async () => {
  const store = expressStore({ windowMs: NEVER })
  await store.increment(7)
  assert.equal((await store.increment('7')).totalHits, 2)
  for (const key of [undefined, null, {}, NaN]) await assert.rejects(store.increment(key), { message: /the key is/ })
  await assert.rejects(store.increment(''), { message: /the key is empty/ })
})

test('options that cannot be meant are refused', () => {
  const limiter = new Limiter({ rules: { a: '5/m', b: '5/m' } })
  for (const [options, message] of [
    [{ sendCommand: () => {} }, /"sendCommand" is not an option; there are url, prefix/],
    [limiter, /write expressStore\({ limiter, rule }\)/],
    [{ limiter }, /write rule: one of a, b/],
    [{ limiter, rule: 'c' }, /no rule is called c; write rule: one of a, b/],
    [{ limiter, rule: 'a', url: 'redis://127.0.0.1' }, /limiter has its own url/],
    [{ limiter: {} }, /must be a Limiter/],
    [{ rule: 'a' }, /write it beside limiter/],
    [{ url: 'redis://127.0.0.1', clock: new FakeClock() }, /leave url out, or clock/],
    [{ algorithm: 'gcra', limit: 1 }, /write one of sliding_window/],
    [{ algorithm: 'sliding_window' }, /needs the limit/],
    [{ limit: NaN }, /the limit is NaN/],
    [{ windowMs: 0 }, /whole milliseconds/],
    [{ windowMs: '1m' }, /whole milliseconds/],
    [{ prefix: 'ä' }, /prefix/],
    [{ deadline: 0 }, /./],
  ]) {
    assert.throws(() => expressStore(options), { name: 'TidegateError', message }, JSON.stringify(options))
  }
  limiter.close()
})

for (const what of ['pause', 'kill']) {
  const how = what === 'pause' ? 'hangs' : 'is dead'
  test(`a server that ${how}: an answer within the deadline, by passOnStoreError`, async (t) => {
    const redis = await own(t, 'server')
    const hosts = []
    for (const passOnStoreError of [true, false]) {
      const store = expressStore({ url: redis.url, prefix: prefix(), deadline: 300 })
      hosts.push(await served(t, { store, passOnStoreError }))
    }
    for (const { url } of hosts) await until(async () => (await get(url)).status === 200, 'the server answers')
    await redis.do(what)
    for (const [{ url, said }, status] of [
      [hosts[0], 200],
      [hosts[1], 500],
    ]) {
      const [answers, ms] = await timed(() => flood(url, 20))
      assert.deepEqual(statuses(answers), { [status]: 20 })
      assert.ok(ms < 5000, `${ms} ms`)
      if (status === 200) assert.ok(said.every(({ code }) => ['timeout', 'store_unavailable'].includes(code)))
    }
    await redis.do(what === 'pause' ? 'resume' : 'restart')
    await until(async () => (await get(hosts[1].url)).status !== 500, 'it goes on when the server is back')
  })
}

test('an application starts without its server', async (t) => {
  const store = expressStore({ url: await nobody(), deadline: 300 })
  const { url, said } = await served(t, { store, passOnStoreError: true })
  const [answers, ms] = await timed(() => flood(url, 20))
  assert.deepEqual(statuses(answers), { 200: 20 })
  assert.ok(ms < 5000, `${ms} ms`)
  assert.equal(said.length, 20)
})
