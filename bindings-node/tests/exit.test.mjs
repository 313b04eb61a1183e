// How a process ends that has a limiter: by itself when it has nothing to do, and with its own code whatever is in flight.
import assert from 'node:assert/strict'
import test from 'node:test'

import { beginNode, end, runNode } from './support/processes.mjs'
import { own, prefix, shared } from './support/servers.mjs'

const redis = await shared('server')
const cluster = await shared('cluster')
const CLEAN = { code: 0, signal: null, err: '' }
const IN_FLIGHT = 10_000
/** Less than the deadline of the limiters here: whoever waits for a server that hangs is noticed. */
const SOON = { timeoutMs: 40_000 }

const LIMITER = `
  import { Limiter } from 'tidegate'
  const { url, prefix } = given
  const made = (more) => new Limiter({ rules: { a: '100/m' }, ...(url && { url }), prefix, deadline: '60s', ...more })
  const limiter = made()
`
const stores = { memory: () => undefined, redis: () => redis.url, cluster: () => cluster.url }

for (const [store, urlOf] of Object.entries(stores)) {
  const given = () => ({ url: urlOf(), prefix: prefix() })

  test(`a process with an idle limiter ends by itself: ${store}`, async () => {
    const ended = await runNode(
      `${LIMITER}
      const decisions = await Promise.all(Array.from({ length: 200 }, () => limiter.check('a', 'x')))
      console.log(decisions.filter(({ allowed }) => allowed).length)
      globalThis.kept = [limiter, made()] // the second one was never asked`,
      given(),
    )
    assert.deepEqual({ ...end(ended), out: ended.out }, { ...CLEAN, out: '100\n' })
  })

  test(`a process waits for the calls that it has made, and no longer: ${store}`, async () => {
    const ended = await runNode(
      `${LIMITER}
      limiter.check('a', 'x').then(({ allowed }) => console.log(allowed))
      limiter.acquire('a', 'x').then(({ allowed }) => console.log(allowed))
      limiter.ready().then(() => console.log('ready'))`,
      given(),
    )
    assert.deepEqual(end(ended), CLEAN)
    assert.deepEqual(ended.out.trim().split('\n').sort(), ['ready', 'true', 'true'])
  })

  test(`and for the requests of a policy: ${store}`, async () => {
    const ended = await runNode(
      `import { Policy } from 'tidegate'
      const { url, prefix } = given
      const policy = new Policy({
        version: 1,
        store: { ...(url && { url }), prefix, deadline: '60s' },
        rules: { a: '1/h' },
        routes: [{ path: '/', rules: 'a', key: 'ip', refund_status: '5xx' }],
      })
      const asked = () => policy.admit(policy.request('GET', '/'), { peer: '203.0.113.7' })
      asked().then(async (admission) => {
        console.log(admission.status, (await asked()).status, await admission.settle(503), (await asked()).status)
      })`,
      given(),
    )
    assert.deepEqual({ ...end(ended), out: ended.out }, { ...CLEAN, out: 'null 429 true null\n' })
  })

  test(`a closed limiter lets go, and says so: ${store}`, async () => {
    const ended = await runNode(
      `${LIMITER}
      const early = Array.from({ length: 1_000 }, () => limiter.check('a', 'x').catch(({ code }) => code))
      limiter.close()
      limiter.close()
      const told = await Promise.all(early)
      const late = await limiter.check('a', 'x').catch(({ code }) => code)
      console.log(told.length, late)`,
      given(),
    )
    assert.deepEqual({ ...end(ended), out: ended.out }, { ...CLEAN, out: '1000 invalid_request\n' })
  })
}

test('a limiter whose server is away does not keep a process', async (t) => {
  const hurt = await own(t, 'server')
  const given = { url: hurt.url, prefix: prefix() }
  await hurt.do('kill')
  const ended = await runNode(
    `${LIMITER}
    const decision = await made({ deadline: '100ms' }).check('a', 'x')
    console.log(decision.allowed, decision.origin)`,
    given,
  )
  await hurt.do('restart')
  assert.deepEqual({ ...end(ended), out: ended.out }, { ...CLEAN, out: 'true open\n' })
})

/** Ways to end while 10,000 calls are in flight, and how a process must have ended then. */
const WAYS = {
  'process.exit(0)': { code: 0 },
  'process.exit(7)': { code: 7 },
  'throw new Error("mine")': { code: 1, says: /Error: mine/ },
  'Promise.reject(new Error("mine"))': { code: 1, says: /Error: mine/ },
  'setImmediate(() => { throw new Error("mine") })': { code: 1, says: /Error: mine/ },
  'setTimeout(() => process.exit(3), 5)': { code: 3 },
  'process.on("exit", () => { process.exitCode = 4; limiter.check("a", "x") }); process.exit()': { code: 4 },
  'process.kill(process.pid, "SIGTERM")': { code: null, signal: 'SIGTERM' },
}

const LOAD = `${LIMITER}
  await limiter.ready(20_000)
  for (let call = 0; call < given.calls; call += 1) limiter.check('a', \`user \${call % 10}\`)
  limiter.acquire('a', 'x', { cost: 100 })
  limiter.acquire('a', 'x', { cost: 100 }) // stands in line
`

for (const [store, urlOf] of Object.entries(stores)) {
  for (const [way, { code, signal = null, says = /^$/ }] of Object.entries(WAYS)) {
    test(`${way} with calls in flight: ${store}`, async () => {
      for (const turn of ['of this tick', 'that have left']) {
        const left = turn === 'of this tick' ? '' : 'await new Promise((resolve) => setImmediate(resolve))'
        const given = { url: urlOf(), prefix: prefix(), calls: IN_FLIGHT }
        const ended = await runNode(`${LOAD}${left}\n${way}`, given)
        assert.deepEqual([ended.code, ended.signal, ended.late], [code, signal, false], `${turn}: ${ended.err}`)
        assert.match(ended.err, says)
      }
    })
  }
}

test('a process that exits does not wait for a server that hangs', async (t) => {
  const hurt = await own(t, 'server')
  for (const [way, { code, signal = null, says = /^$/ }] of Object.entries(WAYS)) {
    const load = `${LOAD}
      await new Promise((resolve) => setTimeout(resolve, 20))
      process.stdout.write('hang\\n')
      await new Promise((resolve) => process.stdin.once('data', resolve))
      process.stdin.destroy()
      for (let call = 0; call < given.calls; call += 1) limiter.check('a', \`user \${call % 10}\`)
      await new Promise((resolve) => setTimeout(resolve, 20))
      ${way}`
    const { child, line, ended } = beginNode(load, { url: hurt.url, prefix: prefix(), calls: IN_FLIGHT }, SOON)
    await line()
    await hurt.do('pause')
    child.stdin.write('go\n')
    const told = await ended
    await hurt.do('resume')
    assert.deepEqual([told.code, told.signal, told.late], [code, signal, false], `${way}: ${told.err}`)
    assert.match(told.err, says)
  }
})
