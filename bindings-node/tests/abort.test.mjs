// `acquire`: the line it stands in, how it is called off, and time that a test's own timers do not have.
import assert from 'node:assert/strict'
import test from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'

import { Limiter } from 'tidegate'
import { FakeClock } from 'tidegate/testing'
import { end, runNode, within } from './support/processes.mjs'
import { own, prefix, shared } from './support/servers.mjs'

const redis = await shared('server')
const stores = { memory: undefined, redis: redis.url }
const ROOM_MS = 30_000
const WINDOW_MS = 2_000

const limiterOf = (url, rules, more) =>
  new Limiter({ rules, ...(url && { url }), prefix: prefix(), deadline: '20s', ...more })

for (const [store, url] of Object.entries(stores)) {
  test(`a call that is called off frees its place, and charges nothing: ${store}`, async () => {
    const limiter = limiterOf(url, { a: `1/${WINDOW_MS}ms sliding_window_log` })
    assert.ok((await limiter.check('a', 'x')).allowed)
    const off = new AbortController()
    const reason = new Error('nobody waits any more')
    const waits = Array.from({ length: 10 }, () =>
      limiter.acquire('a', 'x', { signal: off.signal }).catch((error) => error),
    )
    await sleep(100)
    off.abort(reason)
    assert.deepEqual(await within(ROOM_MS, Promise.all(waits)), Array(10).fill(reason))
    // One that still stood in line would have its turn before this check.
    await sleep(WINDOW_MS + 500)
    assert.ok((await limiter.check('a', 'x')).allowed)
  })

  test(`those behind it go on: ${store}`, async () => {
    const limiter = limiterOf(url, { a: `1/${WINDOW_MS}ms sliding_window_log` })
    assert.ok((await limiter.check('a', 'x')).allowed)
    const off = new AbortController()
    const first = limiter.acquire('a', 'x', { signal: off.signal, timeout: '1m' }).catch(({ name }) => name)
    const second = limiter.acquire('a', 'x', { timeout: '1m' })
    await sleep(50)
    off.abort()
    assert.equal(await within(ROOM_MS, first), 'AbortError')
    const { allowed, remaining } = await within(ROOM_MS, second)
    assert.deepEqual([allowed, remaining], [true, 0])
  })

  test(`a signal that is there already: nothing is charged: ${store}`, async () => {
    const limiter = limiterOf(url, { a: '1/h' })
    const reason = { any: 'value' }
    await assert.rejects(
      limiter.acquire('a', 'x', { signal: AbortSignal.abort(reason) }),
      (thrown) => thrown === reason,
    )
    assert.equal((await limiter.peek('a', 'x')).remaining, 1)
    await assert.rejects(limiter.acquire('a', 'x', { signal: AbortSignal.abort() }), { name: 'AbortError' })
  })

  test(`a signal that times out, and one that comes too late: ${store}`, async () => {
    const limiter = limiterOf(url, { a: '1/h' })
    const off = new AbortController()
    assert.ok((await limiter.acquire('a', 'x', { signal: off.signal })).allowed)
    off.abort()
    const timed = limiter.acquire('a', 'x', { signal: AbortSignal.timeout(50), timeout: '2h' })
    await assert.rejects(within(ROOM_MS, timed), { name: 'TimeoutError' })
    assert.equal((await limiter.peek('a', 'x')).remaining, 0, 'the first one keeps what it was given')
  })

  test(`what a call is given stays charged where its signal did not reach it: ${store}`, async () => {
    const limiter = limiterOf(url, { a: '5/h' })
    const off = new AbortController()
    off.signal.addEventListener('abort', (event) => event.stopImmediatePropagation())
    const call = limiter.acquire('a', 'x', { signal: off.signal })
    off.abort()
    assert.ok((await call).allowed)
    await sleep(50)
    assert.equal((await limiter.peek('a', 'x')).remaining, 4)
  })

  test(`a signal keeps no listener of a call that has ended: ${store}`, async () => {
    const limiter = limiterOf(url, { a: '1000/h' })
    const { signal } = new AbortController()
    const heard = []
    const { addEventListener, removeEventListener } = signal
    signal.addEventListener = (...told) => (heard.push(told[1]), addEventListener.apply(signal, told))
    signal.removeEventListener = (...told) => (
      heard.splice(heard.indexOf(told[1]), 1),
      removeEventListener.apply(signal, told)
    )
    await Promise.all(Array.from({ length: 50 }, () => limiter.acquire('a', 'x', { signal })))
    await limiter.acquire('a', '', { signal }).catch(() => {})
    assert.equal(heard.length, 0)
  })

  test(`a wait that would be longer than its timeout is refused at once: ${store}`, async () => {
    const limiter = limiterOf(url, { a: '1/h' })
    await limiter.check('a', 'x')
    const { allowed, retryAfterMs } = await within(ROOM_MS, limiter.acquire('a', 'x', { timeout: '1m' }))
    assert.equal(allowed, false)
    assert.ok(retryAfterMs > 3_500_000)
  })
}

test('a call in flight to a server that hangs is called off at once, and charges nothing', async (t) => {
  const hurt = await own(t, 'server')
  const limiter = limiterOf(hurt.url, { a: '5/h' }, { deadline: '60s' })
  await limiter.check('a', 'warm')
  await hurt.do('pause')
  const off = new AbortController()
  const waits = Array.from({ length: 100 }, () =>
    limiter.acquire('a', 'x', { signal: off.signal }).catch(({ name }) => name),
  )
  await sleep(50)
  off.abort()
  assert.deepEqual(new Set(await within(ROOM_MS, Promise.all(waits))), new Set(['AbortError']))
  await hurt.do('resume')
  // What had reached the server is given back as soon as it is known.
  const until = Date.now() + ROOM_MS
  while ((await limiter.peek('a', 'x')).remaining < 5 && Date.now() < until) await sleep(20)
  assert.equal((await limiter.peek('a', 'x')).remaining, 5)
})

// A test's timers stand still. The limiter is made before or after they are replaced, and neither waits for them.
const FAKES = `
  const names = ['setTimeout', 'setInterval', 'setImmediate', 'queueMicrotask', 'clearTimeout', 'clearInterval']
  const stop = () => {
    for (const name of names) globalThis[name] = () => ({ ref() {}, unref() {} })
    process.nextTick = () => {}
    globalThis.performance = { now: () => 0 }
    globalThis.Date = class extends Date { static now() { return 0 } }
  }
  const load = async () => (await import('tidegate')).Limiter
`
const ORDERS = {
  'before the timers stop': 'const Limiter = await load()\nconst limiter = made(Limiter)\nstop()',
  'after the timers stop': 'stop()\nconst Limiter = await load()\nconst limiter = made(Limiter)',
}
for (const [store, url] of Object.entries(stores)) {
  for (const [order, begin] of Object.entries(ORDERS)) {
    test(`timers that stand still do not hang a limiter made ${order}: ${store}`, async () => {
      const source = `${FAKES}
        const { url, prefix } = given
        const made = (Limiter) =>
          new Limiter({ rules: { a: '3/h', b: '1/200ms' }, ...(url && { url }), prefix, deadline: '20s' })
        ${begin}
        await limiter.ready()
        const checks = await Promise.all(Array.from({ length: 5 }, () => limiter.check('a', 'x')))
        await limiter.acquire('b', 'x')
        const { allowed } = await limiter.acquire('b', 'x')
        console.log(checks.filter(({ allowed }) => allowed).length, allowed)`
      const ended = await runNode(source, { url, prefix: prefix() })
      assert.deepEqual({ ...end(ended), out: ended.out }, { code: 0, signal: null, err: '', out: '3 true\n' })
    })
  }

  test(`the runner's own fake timers do not hang a call: ${store}`, async (t) => {
    const limiter = limiterOf(url, { a: '3/h', b: '1/200ms' })
    t.mock.timers.enable()
    await limiter.acquire('b', 'x')
    assert.ok((await limiter.acquire('b', 'x')).allowed)
    assert.ok((await limiter.check('a', 'x')).allowed)
  })
}

test('a clock of tests decides in memory', async () => {
  const clock = new FakeClock()
  const limiter = new Limiter({ rules: { a: '1/m' }, clock })
  assert.ok((await limiter.check('a', 'x')).allowed)
  const { retryAfterMs } = await limiter.check('a', 'x')
  assert.equal(retryAfterMs, 60_000)
  clock.advance(retryAfterMs - 1)
  assert.equal((await limiter.check('a', 'x')).allowed, false)
  clock.advance('1ms')
  assert.ok((await limiter.check('a', 'x')).allowed)
})
