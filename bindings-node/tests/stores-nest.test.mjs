import 'reflect-metadata'
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { setImmediate } from 'node:timers/promises'
import { Controller, Get, Module } from '@nestjs/common'
import { APP_GUARD, NestFactory } from '@nestjs/core'
import { SkipThrottle, Throttle, ThrottlerGuard, ThrottlerModule } from '@nestjs/throttler'
import { Limiter } from 'tidegate'
import { throttlerStorage } from 'tidegate/stores'
import { FakeClock } from 'tidegate/testing'
import { own, prefix } from './support/servers.mjs'
import { flood, get, numbers, places, statuses, timed, until, upTo } from './support/stores.mjs'

const PLACES = await places()
const HOUR = 3_600_000

/** A decorator on a method of a class that is written without them. */
function decorate(type, method, ...decorators) {
  const descriptor = Object.getOwnPropertyDescriptor(type.prototype, method)
  for (const decorator of decorators) decorator(type.prototype, method, descriptor)
}

/** An application behind throttler's guard: `/`, `/strict` with a limit of 1, `/free` with none. */
async function served(t, throttlers, storage) {
  class Answers {
    all() {
      return 'in'
    }
    strict() {
      return 'in'
    }
    free() {
      return 'in'
    }
  }
  decorate(Answers, 'all', Get())
  decorate(Answers, 'strict', Get('strict'), Throttle({ default: { limit: 1, ttl: HOUR } }))
  decorate(Answers, 'free', Get('free'), SkipThrottle())
  Controller()(Answers)
  class App {}
  Module({
    imports: [ThrottlerModule.forRoot({ throttlers, storage })],
    controllers: [Answers],
    providers: [{ provide: APP_GUARD, useClass: ThrottlerGuard }],
  })(App)
  const app = await NestFactory.create(App, { logger: false })
  await app.listen(0, '127.0.0.1')
  t.after(() => app.close())
  return { url: await app.getUrl(), app }
}

for (const place of PLACES) {
  for (const blockDuration of [undefined, 0, 60_000]) {
    test(`${place.name}, blocked for ${blockDuration ?? 'the ttl'}: of 200 at once exactly 40 pass`, async (t) => {
      const throttler = { ttl: HOUR, limit: 40, ...(blockDuration !== undefined && { blockDuration }) }
      const { url } = await served(t, [throttler], throttlerStorage(place.options()))
      const answers = await flood(url, 200)
      assert.deepEqual(statuses(answers), { 200: 40, 429: 160 })
      assert.deepEqual(numbers(answers, 'x-ratelimit-remaining'), upTo(40))
      for (const { status, headers } of answers) {
        if (status === 200) {
          assert.equal(headers.get('x-ratelimit-limit'), '40')
          assert.equal(headers.get('x-ratelimit-reset'), '3600')
        } else {
          const wait = Number(headers.get('retry-after'))
          const most = (blockDuration || HOUR) / 1000
          assert.ok(wait > most - 40 && wait <= most, String(wait))
        }
      }
      assert.equal((await get(`${url}/strict`)).status, 200)
      assert.equal((await get(`${url}/strict`)).status, 429)
      assert.equal((await get(`${url}/free`)).status, 200)
    })
  }

  test(`${place.name}: exactly the limit passes while a short block begins`, async (t) => {
    const storage = throttlerStorage(place.options())
    t.after(() => storage.onModuleDestroy())
    for (let round = 0; round < 50; round += 1) {
      const hits = []
      for (let times = 0; times < 60; times += 1) {
        hits.push(storage.increment(`client ${round}`, HOUR, 3, 60_000, 'default'))
        await setImmediate()
      }
      const passed = (await Promise.all(hits)).filter(({ isBlocked }) => !isBlocked)
      assert.deepEqual(passed.map(({ totalHits }) => totalHits).sort(), [1, 2, 3])
    }
  })

  test(`${place.name}: a block that is shorter than the window ends, and forgives`, async (t) => {
    const throttler = { ttl: HOUR, limit: 2, blockDuration: 3000 }
    const { url } = await served(t, [throttler], throttlerStorage(place.options()))
    assert.deepEqual(statuses(await flood(url, 10)), { 200: 2, 429: 8 })
    const [, ms] = await timed(() => until(async () => (await get(url)).status === 200, 'the block ends'))
    assert.ok(ms > 500, `there was a block, of ${ms} ms`)
    // That was the first of a new quota.
    assert.equal((await get(url)).status, 200)
    assert.equal((await get(url)).status, 429)
  })
}

test('times: blocks begin with the refusal, hits leave one by one', async () => {
  const clock = new FakeClock()
  const storage = throttlerStorage({ clock })
  const hit = (block, ttl = 10_000, limit = 2) => storage.increment(`of ${block}`, ttl, limit, block, 'default')

  // As long as the window, which is what throttler asks for unless told otherwise.
  assert.deepEqual(await hit(10_000), { totalHits: 1, timeToExpire: 10, isBlocked: false, timeToBlockExpire: 0 })
  clock.advance(4000)
  assert.deepEqual(await hit(10_000), { totalHits: 2, timeToExpire: 10, isBlocked: false, timeToBlockExpire: 0 })
  clock.advance(4000)
  assert.deepEqual(await hit(10_000), { totalHits: 3, timeToExpire: 10, isBlocked: true, timeToBlockExpire: 10 })
  clock.advance(9999)
  assert.deepEqual(await hit(10_000), { totalHits: 3, timeToExpire: 1, isBlocked: true, timeToBlockExpire: 1 })
  clock.advance(1)
  assert.equal((await hit(10_000)).isBlocked, false)

  // None: a refused request waits for the oldest hit to leave, and is not counted.
  await hit(0)
  clock.advance(4000)
  await hit(0)
  for (let times = 0; times < 3; times += 1) {
    assert.deepEqual(await hit(0), { totalHits: 3, timeToExpire: 6, isBlocked: true, timeToBlockExpire: 6 })
  }
  clock.advance(6000)
  assert.equal((await hit(0)).isBlocked, false)
  assert.equal((await hit(0)).isBlocked, true)

  // Shorter than the window: what led to it is forgiven, once it is over.
  await hit(3000)
  await hit(3000)
  assert.deepEqual(await hit(3000), { totalHits: 3, timeToExpire: 3, isBlocked: true, timeToBlockExpire: 3 })
  clock.advance(2999)
  assert.equal((await hit(3000)).isBlocked, true)
  clock.advance(1)
  assert.equal((await hit(3000)).totalHits, 1)
  assert.equal((await hit(3000)).totalHits, 2)
  assert.equal((await hit(3000)).isBlocked, true)

  // Longer: it outlasts them.
  await hit(60_000)
  await hit(60_000)
  assert.equal((await hit(60_000)).timeToBlockExpire, 60)
  clock.advance(59_999)
  assert.equal((await hit(60_000)).isBlocked, true)
  clock.advance(1)
  assert.equal((await hit(60_000)).isBlocked, false)
})

test('limits come with each call, names and keys stay apart', async () => {
  const storage = throttlerStorage()
  const hit = (key, name, limit) => storage.increment(key, HOUR, limit, 0, name)
  assert.equal((await hit('a', 'b', 1)).isBlocked, false)
  assert.equal((await hit('a', 'b', 1)).isBlocked, true)
  assert.deepEqual((await hit('a', 'b', 3)).totalHits, 2)
  for (const [key, name] of [
    ['a', 'c'],
    ['a:b', 'default'],
    ['a', 'b:default'],
  ]) {
    assert.equal((await hit(key, name, 1)).isBlocked, false)
  }
  assert.deepEqual(await hit('none', 'b', 0), {
    totalHits: 1,
    timeToExpire: 3600,
    isBlocked: true,
    timeToBlockExpire: 3600,
  })
  assert.equal((await hit('half', 'b', 1.5)).isBlocked, false)
  assert.equal((await hit('half', 'b', 1.5)).isBlocked, true)
  await assert.rejects(hit('a', 'b', Infinity), { code: 'invalid_request', message: /the limit is Infinity/ })
  await assert.rejects(storage.increment('a', 0, 1, 0, 'b'), { message: /whole milliseconds/ })
})

test('several throttlers have headers and counts of their own', async (t) => {
  const throttlers = [
    { name: 'short', ttl: HOUR, limit: 3 },
    { name: 'long', ttl: 2 * HOUR, limit: 2 },
  ]
  const { url } = await served(t, throttlers, throttlerStorage())
  const { headers } = await get(url)
  assert.equal(headers.get('x-ratelimit-remaining-short'), '2')
  assert.equal(headers.get('x-ratelimit-remaining-long'), '1')
  await get(url)
  const refused = await get(url)
  assert.equal(refused.status, 429)
  assert.equal(refused.headers.get('retry-after-long'), '7200')
})

test("Nest ends the storage's own connections, and no limiter of the application's", async (t) => {
  const storage = throttlerStorage()
  const { app } = await served(t, [{ ttl: HOUR, limit: 2 }], storage)
  await app.close()
  await assert.rejects(storage.increment('a', HOUR, 1, 0, 'b'))

  const limiter = new Limiter({ rules: { api: '5/m' } })
  const shared = await served(t, [{ ttl: HOUR, limit: 2 }], throttlerStorage({ limiter }))
  await get(shared.url)
  await shared.app.close()
  assert.ok((await limiter.check('api', 'alice')).allowed)
  limiter.close()
})

for (const what of ['pause', 'kill']) {
  const how = what === 'pause' ? 'hangs' : 'is dead'
  test(`a server that ${how}: an answer within the deadline, by onError`, async (t) => {
    const redis = await own(t, 'server')
    const hosts = []
    for (const onError of ['allow', 'reject']) {
      const storage = throttlerStorage({ url: redis.url, prefix: prefix(), deadline: 300, onError })
      hosts.push((await served(t, [{ ttl: HOUR, limit: 3 }], storage)).url)
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

test('options that cannot be meant are refused', () => {
  for (const [options, message] of [
    [{ onError: 'deny' }, /write "reject" or "allow"/],
    [{ algorithm: 'moving' }, /write one of/],
    [{ redis: {} }, /"redis" is not an option/],
  ]) {
    assert.throws(() => throttlerStorage(options), { name: 'TidegateError', message })
  }
})
