// Memory and threads after many calls. TIDEGATE_TEST_CHECKS=1000000 for a long run.
import assert from 'node:assert/strict'
import test from 'node:test'

import { end, runNode } from './support/processes.mjs'
import { prefix, shared } from './support/servers.mjs'

const CHECKS = Number(process.env.TIDEGATE_TEST_CHECKS ?? 100_000)
const redis = await shared('server')
const stores = { memory: undefined, redis: redis.url }
/** Of a process that has warmed up. In a long run eight bytes a check are more. */
const MOST_BYTES = 8 * 1024 * 1024
/** V8 would make room for young objects as it likes, and keep it: that is no leak. */
const FLAGS = ['--expose-gc', '--max-semi-space-size=2']

/** A load in a process of its own, which tells by how much its memory and its threads grew after it had warmed up. */
async function growth(load, given) {
  const source = `
    import { readdirSync } from 'node:fs'
    import { Limiter, Policy } from 'tidegate'
    const { url, prefix, checks } = given
    const rules = { a: '1000000/s token_bucket', once: '1/h' }
    const limiter = new Limiter({ rules, ...(url && { url }), prefix, deadline: '20s' })
    const settled = async () => {
      for (let turn = 0; turn < 5; turn += 1) {
        gc()
        await new Promise((resolve) => setImmediate(resolve))
      }
      return { bytes: process.memoryUsage().rss, threads: readdirSync('/proc/self/task').length }
    }
    ${load}
    await many(checks)
    const before = await settled()
    await many(checks)
    const after = await settled()
    console.log(JSON.stringify({ bytes: after.bytes - before.bytes, threads: after.threads - before.threads }))`
  const timeoutMs = 120_000 + CHECKS
  const ended = await runNode(source, { checks: CHECKS, ...given }, { flags: FLAGS, timeoutMs })
  assert.deepEqual(end(ended), { code: 0, signal: null, err: '' })
  const { bytes, threads } = JSON.parse(ended.out)
  assert.ok(bytes < MOST_BYTES, `${bytes} bytes more after ${CHECKS} calls`)
  assert.equal(threads, 0)
}

const LOADS = {
  'checks of one tick': `
    const many = async (checks) => {
      for (let done = 0; done < checks; done += 100) {
        const calls = Array.from({ length: 100 }, (_, call) => limiter.check('a', \`user \${call}\`))
        for (const { receipt } of await Promise.all(calls)) if (!receipt) throw new Error('nothing was charged')
      }
    }`,
  'checks one by one': `
    const many = async (checks) => {
      for (let done = 0; done < checks / 5; done += 1) await limiter.check('a', \`user \${done % 100}\`)
    }`,
  'refusals, of several rules': `
    const many = async (checks) => {
      for (let done = 0; done < checks / 2; done += 100) {
        const calls = Array.from({ length: 100 }, (_, call) => limiter.checkAll(['a', 'once'], \`user \${call}\`))
        await Promise.all(calls)
      }
    }`,
  'calls that are refunded, reset, counted and waited for': `
    const many = async (checks) => {
      for (let done = 0; done < checks / 10; done += 100) {
        await Promise.all(Array.from({ length: 100 }, async (_, call) => {
          const key = [\`user \${call}\`, Buffer.from([call])]
          const { receipt } = await limiter.acquire('a', key)
          await limiter.refund(receipt)
          await limiter.count('a', key, '1m', 1)
          await limiter.reset('a', key)
        }))
      }
    }`,
  'waits that are called off': `
    await limiter.check('once', 'x')
    const many = async (checks) => {
      for (let done = 0; done < checks / 10; done += 100) {
        const off = new AbortController()
        const waits = Array.from({ length: 100 }, () =>
          limiter.acquire('once', 'x', { timeout: '2h', signal: off.signal }).catch((error) => error))
        await new Promise((resolve) => setImmediate(resolve))
        off.abort()
        for (const error of await Promise.all(waits)) if (error.name !== 'AbortError') throw error
      }
    }`,
  'errors of arguments': `
    const many = async (checks) => {
      for (let done = 0; done < checks / 10; done += 1) {
        await limiter.check('a', '').then(() => { throw new Error('admitted') }, ({ code }) => code)
        await limiter.check('b', 'x').then(() => { throw new Error('admitted') }, ({ code }) => code)
      }
    }`,
  'limiters that are made, used and forgotten': `
    const many = async (checks) => {
      for (let done = 0; done < checks / 500; done += 1) {
        const own = new Limiter({ rules, ...(url && { url }), prefix, deadline: '20s' })
        await Promise.all(Array.from({ length: 5 }, () => own.check('a', 'x')))
        if (done % 2) own.close()
        if (done % 20 === 0) gc()
        await new Promise((resolve) => setImmediate(resolve))
      }
    }`,
  'requests of a policy': `
    const routes = [{ path: '/items/{id}', rules: 'a', key: 'ip', refund_status: '5xx' }]
    const policy = new Policy({ version: 1, store: { ...(url && { url }), prefix, deadline: '20s' }, rules, routes })
    const many = async (checks) => {
      for (let done = 0; done < checks / 2; done += 100) {
        await Promise.all(Array.from({ length: 100 }, async (_, call) => {
          const request = policy.request('GET', \`/items/\${call}\`)
          const told = { peer: \`203.0.113.\${call}\`, headers: ['accept', 'text/plain'] }
          const admission = await policy.admit(request, told)
          if (!admission.headers.length) throw new Error('it says nothing')
          await admission.settle(call % 10 ? 200 : 500)
        }))
      }
    }`,
}

for (const [store, url] of Object.entries(stores)) {
  for (const [name, load] of Object.entries(LOADS)) {
    test(`${name}: ${store}`, () => growth(load, { url, prefix: prefix() }))
  }
}
