// A store that hangs, is down or fails over: each call is answered by its deadline, and the rule says what.
import assert from 'node:assert/strict'
import test from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'

import { Limiter, Policy, TidegateError } from 'tidegate'
import { within } from './support/processes.mjs'
import { killOneMaster, own, prefix, shared } from './support/servers.mjs'

const redis = await shared('server')
const DEADLINE_MS = 100
/** Answers come by the deadline; a busy machine has them this late at most. What waits for a server takes longer. */
const ROOM_MS = 5_000
const RULES = {
  open: { limits: '1000/h', on_error: 'allow' },
  closed: { limits: '1000/h', on_error: 'deny' },
  local: { limits: '3/h', on_error: 'local' },
}

function limiterOf(t, url, more) {
  const limiter = new Limiter({ rules: RULES, url, prefix: prefix(), deadline: DEADLINE_MS, ...more })
  t.after(() => limiter.close())
  return limiter
}

/** Each rule answers as it must without a store. */
async function answersAlone(limiter, codes) {
  const answers = await within(
    ROOM_MS,
    Promise.all(['open', 'closed', 'local', 'local', 'local', 'local'].map((rule) => limiter.check(rule, 'x'))),
  )
  assert.deepEqual(
    answers.map(({ allowed, origin }) => [allowed, origin]),
    [
      [true, 'open'],
      [false, 'closed'],
      [true, 'local'],
      [true, 'local'],
      [true, 'local'],
      [false, 'local'],
    ],
  )
  for (const { failure, receipt } of answers) {
    assert.ok(failure instanceof TidegateError)
    assert.ok(codes.includes(failure.code), failure.code)
    assert.equal(receipt, '')
  }
}

/** The store decides again before long. */
async function comesBack(limiter) {
  const until = Date.now() + 60_000
  while (Date.now() < until) {
    const { origin } = await limiter.check('open', 'back')
    if (origin === 'store') return
    await sleep(50)
  }
  assert.fail('the store does not decide again')
}

for (const kind of ['server', 'cluster']) {
  for (const [harm, cure, codes] of [
    ['pause', 'resume', ['timeout', 'store_unavailable']],
    ['kill', 'restart', ['timeout', 'store_unavailable']],
  ]) {
    if (kind === 'cluster' && harm === 'kill') continue
    test(`${harm} of a ${kind}: the rules answer by the deadline, and the store again when it can`, async (t) => {
      const hurt = await own(t, kind)
      const limiter = limiterOf(t, hurt.url)
      await limiter.ready(20_000)
      await comesBack(limiter)
      await hurt.do(harm)
      try {
        await answersAlone(limiter, codes)
        await within(ROOM_MS, Promise.all(Array.from({ length: 10_000 }, () => limiter.check('open', 'y'))))
        await assert.rejects(within(ROOM_MS, limiter.ready(200)), TidegateError)
        await assert.rejects(within(ROOM_MS, limiter.refund((await anyReceipt(t)).receipt)), TidegateError)
        await assert.rejects(within(ROOM_MS, limiter.count('open', 'x', '1m', 1)), TidegateError)
        await assert.rejects(within(ROOM_MS, limiter.reset('open', 'x')), TidegateError)
        assert.equal((await within(ROOM_MS, limiter.acquire('closed', 'x', { timeout: 300 }))).allowed, false)
      } finally {
        await hurt.do(cure)
      }
      await comesBack(limiter)
    })
  }
}

async function anyReceipt(t) {
  const limiter = limiterOf(t, redis.url)
  return limiter.check('open', 'x', { deadline: '20s' })
}

test('a master of a cluster dies: calls are answered by their deadline until its replica has taken over', async (t) => {
  const hurt = await own(t, 'cluster', { hurt: true })
  const limiter = limiterOf(t, hurt.url)
  await limiter.ready(20_000)
  await comesBack(limiter)
  await killOneMaster(hurt.url)
  const origins = new Set()
  const until = Date.now() + 60_000
  while (Date.now() < until) {
    // Of 50 keys each of the three masters has some.
    const calls = Array.from({ length: 50 }, (_, call) => limiter.check('open', `user ${call}`))
    const now = new Set((await within(ROOM_MS, Promise.all(calls))).map(({ origin }) => origin))
    for (const origin of now) origins.add(origin)
    if (origins.has('open') && !now.has('open')) break
    await sleep(20)
  }
  assert.deepEqual([...origins].sort(), ['open', 'store'])
  const calls = Array.from({ length: 50 }, (_, call) => limiter.check('open', `user ${call}`, { deadline: '20s' }))
  const origin = new Set((await within(30_000, Promise.all(calls))).map(({ origin }) => origin))
  assert.deepEqual([...origin], ['store'], 'the replica has taken over')
})

test('a server that is away from the beginning', async (t) => {
  const hurt = await own(t, 'server')
  await hurt.do('kill')
  const limiter = limiterOf(t, hurt.url)
  await answersAlone(limiter, ['timeout', 'store_unavailable'])
  await hurt.do('restart')
  await comesBack(limiter)
})

test('a call has a deadline of its own', async (t) => {
  const hurt = await own(t, 'server')
  const patient = limiterOf(t, hurt.url, { deadline: '60s' })
  await patient.ready(20_000)
  await hurt.do('pause')
  try {
    for (const deadline of [50, '50ms']) {
      const { origin, failure } = await within(ROOM_MS, patient.check('open', 'x', { deadline }))
      assert.deepEqual([origin, failure.code], ['open', 'timeout'])
      assert.equal((await within(ROOM_MS, patient.peek('open', 'x', { deadline }))).origin, 'open')
    }
    const mixed = [patient.check('open', 'x'), patient.check('open', 'x', { deadline: 50 })]
    assert.equal((await within(ROOM_MS, mixed[1])).origin, 'open', 'in the same tick as one that waits')
    await hurt.do('resume')
    assert.equal((await within(ROOM_MS, mixed[0])).origin, 'store')
  } finally {
    await hurt.do('resume')
  }
})

test('a policy whose store hangs answers by its deadline', async (t) => {
  const hurt = await own(t, 'server')
  const policy = new Policy({
    version: 1,
    store: { url: hurt.url, prefix: prefix(), deadline: `${DEADLINE_MS}ms` },
    rules: RULES,
    routes: ['open', 'closed'].map((rules) => ({ path: `/${rules}`, rules, key: 'ip' })),
  })
  t.after(() => policy.close())
  const asked = (path) => policy.admit(policy.request('GET', path), { peer: '203.0.113.7', headers: [] })
  assert.equal((await asked('/closed')).status, null)
  await hurt.do('pause')
  try {
    const [open, closed] = await within(ROOM_MS, Promise.all([asked('/open'), asked('/closed')]))
    assert.deepEqual([open.status, open.outcome], [null, 'allowed'])
    assert.deepEqual([closed.status, closed.outcome], [503, 'unavailable'])
    assert.equal(await within(ROOM_MS, closed.undo()), false, 'nothing was charged')
  } finally {
    await hurt.do('resume')
  }
})
