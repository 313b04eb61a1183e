import assert from 'node:assert/strict'
import { test } from 'node:test'
import { createAdaptorServer } from '@hono/node-server'
import { Hono } from 'hono'
import { rateLimiter } from 'hono-rate-limiter'
import { expressStore } from 'tidegate/stores'
import { own, prefix } from './support/servers.mjs'
import { flood, gate, get, listen, numbers, places, statuses, timed, until, upTo } from './support/stores.mjs'

const PLACES = await places()
const HOUR = 3_600_000

/** An application behind hono-rate-limiter. */
async function served(t, options, handler = (c) => c.text('in')) {
  const app = new Hono()
  app.use(rateLimiter({ windowMs: HOUR, limit: 5, keyGenerator: () => 'alice', ...options }))
  app.get('*', handler)
  app.onError((error, c) => c.text(error.code, 500))
  t.after(() => options.store.shutdown())
  return listen(t, createAdaptorServer(app))
}

for (const place of PLACES) {
  for (const mode of [{}, { limit: 40 }]) {
    test(`${place.name}, ${mode.limit ? 'deciding' : 'counting'}: of 200 at once exactly 40 pass`, async (t) => {
      const store = expressStore({ ...place.options(), ...mode })
      const url = await served(t, { store, limit: 40 })
      const answers = await flood(url, 200)
      assert.deepEqual(statuses(answers), { 200: 40, 429: 160 })
      assert.deepEqual(numbers(answers, 'ratelimit-remaining'), upTo(40))
      const reset = Number(answers[0].headers.get('ratelimit-reset'))
      assert.ok(reset > 3000 && reset <= 3600, String(reset))
    })

    test(`${place.name}, ${mode.limit ? 'deciding' : 'counting'}: a failure from before a window's end takes nothing from the next window`, async (t) => {
      const store = expressStore({ ...place.options(), ...(mode.limit && { limit: 5 }) })
      const slow = gate()
      const handler = async (c) => {
        if (c.req.path === '/slow') await slow.opened
        return c.text('', c.req.path === '/good' ? 200 : 500)
      }
      // As short as it may be on a busy machine: the second request and the late failure must come within one window.
      const url = await served(t, { store, windowMs: 3000, skipFailedRequests: true }, handler)
      const before = get(`${url}/slow`)
      await until(async () => (await store.get('alice'))?.totalHits === 1, 'the slow one is counted')
      await until(async () => !(await store.get('alice')), 'its window is over')
      await get(`${url}/good`)
      await get(`${url}/bad`)
      slow.open()
      assert.equal((await before).status, 500)
      assert.equal((await store.get('alice')).totalHits, 1)
    })
  }
}

test('a store that decides is told the limit of the host, or the limiter is not made', () => {
  const make = () => rateLimiter({ limit: 100, keyGenerator: () => 'alice', store: expressStore({ limit: 5 }) })
  assert.throws(make, { code: 'invalid_request', message: /limit is 5 in the store and 100 in the host/ })
})

test('what a handler asks of the store is there', async (t) => {
  const store = expressStore()
  const url = await served(t, { store }, async (c) => {
    const { getKey, resetKey } = c.get('rateLimitStore')
    const { totalHits } = await getKey('alice')
    await resetKey('alice')
    return c.json({ totalHits, after: (await getKey('alice')) ?? null, ...c.get('rateLimit') })
  })
  for (let times = 0; times < 2; times += 1) {
    const { totalHits, after, limit, used, remaining } = JSON.parse((await get(url)).body)
    assert.deepEqual(
      { totalHits, after, limit, used, remaining },
      { totalHits: 1, after: null, limit: 5, used: 1, remaining: 4 },
    )
  }
})

test('a server that hangs: an error within the deadline, which is for the application to answer', async (t) => {
  const redis = await own(t, 'server')
  const store = expressStore({ url: redis.url, prefix: prefix(), deadline: 300 })
  const url = await served(t, { store })
  await until(async () => (await get(url)).status === 200, 'the server answers')
  await redis.do('pause')
  const [answers, ms] = await timed(() => flood(url, 20))
  assert.deepEqual(statuses(answers), { 500: 20 })
  assert.ok(ms < 5000, `${ms} ms`)
  await redis.do('resume')
})
