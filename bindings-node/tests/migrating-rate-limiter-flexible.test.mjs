// docs/migrating-rate-limiter-flexible.md: each pair of its blocks, side by side on the same calls.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Redis } from 'ioredis'
import { RateLimiterMemory, RateLimiterUnion } from 'rate-limiter-flexible'
import { Limiter } from 'tidegate'
import { own, prefix, shared } from './support/servers.mjs'
import { run, snippets } from './support/snippets.mjs'
import { nobody, timed } from './support/stores.mjs'

const redis = await shared('server')
const BLOCKS = snippets('migrating-rate-limiter-flexible.md', 'js')
const repeated = (times, ...call) => Array.from({ length: times }, () => call)

/** The calls that a pair is asked, one after the other, by its heading. */
const CALLS = {
  'From rate-limiter-flexible': [...repeated(7, 'alice'), ['bob']],
  Logins: [
    ['alice', 'right'],
    ['alice', 'wrong'],
    ['alice', 'wrong'],
    ['alice', 'right'],
    ...repeated(5, 'alice', 'wrong'),
    ['alice', 'right'],
    ['bob', 'right'],
  ],
  'Several limits': [...repeated(5, 'alice'), ['bob']],
  Bursts: [...repeated(10, 'alice'), ['bob']],
  Blocks: [...repeated(4, 'alice'), ['bob']],
  'Black and white lists': ['office', 'bot', 'alice'].flatMap((user) => repeated(4, user)),
  'While Redis is away': [...repeated(4, 'alice'), ['bob']],
  Waiting: repeated(3, 'alice'),
}

/** A block's `attempt`, on this server; what it opened is closed with the test. */
async function attempt(t, code, url) {
  const opened = []
  const kept = (type, close) =>
    class extends type {
      constructor(...options) {
        super(...options)
        opened.push(() => close(this))
      }
    }
  const load = async (name) => {
    if (name === 'tidegate') return { Limiter: kept(Limiter, (limiter) => limiter.close()) }
    if (name === 'ioredis') return { Redis: kept(Redis, (client) => client.disconnect()) }
    return import(name)
  }
  t.after(() => opened.forEach((close) => close()))
  return (await run(code.replaceAll('redis://127.0.0.1:6379', url), load)).attempt
}

/** Times are by two clocks, and calls take their time. */
function alike(one, other, what) {
  const { wait, ...rest } = Object(one)
  const { wait: otherWait, ...otherRest } = Object(other)
  if (wait === undefined) return assert.deepEqual(one, other, what)
  assert.deepEqual(rest, otherRest, what)
  assert.ok(Math.abs(wait - otherWait) <= 20, `${what}: ${wait} and ${otherWait}`)
}

test('every pair of blocks is run', () => {
  assert.deepEqual([...new Set(BLOCKS.map(({ heading }) => heading))], Object.keys(CALLS))
  assert.equal(BLOCKS.length, Object.keys(CALLS).length * 2)
  BLOCKS.forEach(({ code }, index) => {
    assert.match(code, index % 2 === 0 ? /^\/\/ rate-limiter-flexible\n/ : /^\/\/ tidegate\n/)
  })
})

for (const [index, [heading, calls]] of Object.entries(CALLS).entries()) {
  test(`${heading}: the same answers`, async (t) => {
    const url = heading === 'While Redis is away' ? await nobody() : redis.url
    const there = await attempt(t, BLOCKS[index * 2].code, url)
    const here = await attempt(t, BLOCKS[index * 2 + 1].code, url)
    for (const [at, call] of calls.entries()) alike(await here(...call), await there(...call), `${heading}, call ${at}`)
  })
}

test('what is refused is counted there, and not here', async () => {
  const there = new RateLimiterMemory({ points: 10, duration: 60 })
  const passes = (points) =>
    there.consume('alice', points).then(
      () => true,
      () => false,
    )
  const limiter = new Limiter({ rules: { api: '10/m' } })
  const check = async (cost) => (await limiter.check('api', 'alice', { cost })).allowed
  assert.deepEqual([await passes(8), await passes(5), await passes(1)], [true, false, false])
  assert.deepEqual([await check(8), await check(5), await check(1)], [true, false, true])
  limiter.close()
})

test('a union charges those that pass, a rule none', async () => {
  const wide = new RateLimiterMemory({ keyPrefix: 'wide', points: 10, duration: 60 })
  const union = new RateLimiterUnion(new RateLimiterMemory({ keyPrefix: 'small', points: 1, duration: 60 }), wide)
  const limiter = new Limiter({ rules: { small: '1/m', wide: '10/m' } })
  for (let times = 0; times < 5; times += 1) {
    await union.consume('alice').catch(() => {})
    await limiter.checkAll(['small', 'wide'], 'alice')
  }
  assert.equal((await wide.get('alice')).remainingPoints, 5)
  assert.equal((await limiter.peek('wide', 'alice')).remaining, 9)
  limiter.close()
})

test('logins at once: only as many pass as the limit says', async (t) => {
  const [there, here] = await Promise.all(
    BLOCKS.filter(({ heading }) => heading === 'Logins').map(({ code }) => attempt(t, code, redis.url)),
  )
  const wrong = async (block) => {
    const answers = await Promise.allSettled(Array.from({ length: 20 }, () => block('eve', 'wrong')))
    return answers.filter(({ status, value }) => status === 'rejected' || value === 'wrong').length
  }
  assert.equal(await wrong(there), 20)
  assert.equal(await wrong(here), 3)
})

test('rewards are refunds, deletes are resets, limits can come with the call', async () => {
  const limiter = new Limiter({ rules: { api: '5/m' } })
  const { receipt } = await limiter.check('api', 'alice', { cost: 3 })
  assert.equal(await limiter.refund(receipt), true)
  assert.equal(await limiter.refund(receipt).catch((error) => error.code), 'invalid_receipt')
  assert.equal((await limiter.peek('api', 'alice')).remaining, 5)
  await limiter.check('api', 'alice')
  await limiter.reset('api', 'alice')
  assert.equal((await limiter.peek('api', 'alice')).remaining, 5)
  assert.equal((await limiter.check('api', 'alice', { limits: '500/m' })).remaining, 499)
  await assert.rejects(limiter.check('api', 'alice', { cost: 0 }), { message: /peek/ })
  await assert.rejects(limiter.check('api', 1), { message: /String/ })
  assert.equal((await limiter.count('api', 'alice', '1m', 7)).total, 7)
  limiter.close()
})

test('who waits is spaced out', async (t) => {
  const { code } = BLOCKS.findLast(({ heading }) => heading === 'Waiting')
  const wait = await attempt(t, code, redis.url)
  const [passed, ms] = await timed(() => Promise.all([wait('alice'), wait('alice'), wait('alice')]))
  assert.deepEqual(passed, [true, true, true])
  assert.ok(ms > 1900, `${ms} ms`)
})

test('while a server hangs, both kinds of insurance answer; ours by the deadline', async (t) => {
  const hurt = await own(t, 'server')
  const rules = { api: { limits: '4/m', on_error: 'local', share: 2 } }
  const limiter = new Limiter({ url: hurt.url, prefix: prefix(), rules })
  t.after(() => limiter.close())
  await limiter.ready()
  await hurt.do('pause')
  const found = []
  const start = performance.now()
  for (let times = 0; times < 3; times += 1) found.push((await limiter.check('api', 'alice')).allowed)
  assert.deepEqual(found, [true, true, false])
  assert.ok(performance.now() - start < 5000)
  await hurt.do('resume')
})
