// Processes and threads of Node, Python, Django and Rust on one key: together they admit exactly the limit.
import assert from 'node:assert/strict'
import { existsSync } from 'node:fs'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import os from 'node:os'
import path from 'node:path'
import test from 'node:test'
import { fileURLToPath } from 'node:url'
import { Worker } from 'node:worker_threads'

import { begin, run } from './support/processes.mjs'
import { HAMMER, ROOT, prefix, shared } from './support/servers.mjs'

const stores = { redis: await shared('server'), cluster: await shared('cluster') }
const ALGORITHMS = ['sliding_window', 'token_bucket', 'fixed_window']
const NODE = fileURLToPath(new URL('./programs/hammer.mjs', import.meta.url))
const PYTHON = fileURLToPath(new URL('./programs/hammer.py', import.meta.url))
/** Of a process; all of them together ask for more than the limit. */
const CALLS = 1_000
const LIMIT = 2_500

/** The interpreter that has the wheel: `make wheel-python` makes it, and `make test-node` that first. */
const WITH_WHEEL = path.join(ROOT, 'target', 'python', 'bin', 'python')

/** A program that says it is ready and begins at a line of input; then the numbers that it tells. */
async function ready(command, args) {
  const { child, line, ended } = begin(command, args)
  assert.equal(await line(), 'ready')
  return async () => {
    child.stdin.write('go\n')
    const { code, signal, out, err } = await ended
    assert.deepEqual({ code, signal, err }, { code: 0, signal: null, err: '' })
    return out.trim().split('\n').slice(1).map(Number)
  }
}

const node = (given) => ready(process.execPath, [NODE, JSON.stringify({ processes: 2, calls: CALLS, ...given })])
const python = (...told) => ready(WITH_WHEEL, [PYTHON, ...told, String(CALLS)])
const rust =
  (...told) =>
  async () => [Number((await run(HAMMER, told)).split(' ')[0])]

async function together(begun) {
  const counts = (await Promise.all(begun.map((go) => go()))).flat()
  assert.equal(
    counts.reduce((sum, count) => sum + count),
    LIMIT,
    String(counts),
  )
  return counts
}

test('the wheel and the programs that take part are there', () => {
  for (const needed of [WITH_WHEEL, HAMMER]) assert.ok(existsSync(needed), `make test-node makes ${needed}`)
})

for (const [store, { url }] of Object.entries(stores)) {
  for (const algorithm of ALGORITHMS) {
    // A bucket of 2,500 in 366 days has its next unit after hours; a fixed window of 366 days ends in some year.
    const limits = `${LIMIT}/366d ${algorithm}`

    test(`two processes of a Node cluster, one of Python and one of Rust: ${algorithm} on ${store}`, async () => {
      const mine = prefix()
      const rules = { hammer: { limits, on_error: 'deny' } }
      const limiter = { rules, url, prefix: mine }
      const counts = await together([
        await node({ limiter: { ...limiter, deadline: '20s' } }),
        await python('limiter', JSON.stringify({ ...limiter, deadline: 20 })),
        rust('check', url, mine, limits, 'alice', '4', String(CALLS / 4)),
      ])
      assert.equal(counts.length, 4)
    })

    test(`two processes of a Node cluster and a Django process: ${algorithm} on ${store}`, async (t) => {
      const folder = await mkdtemp(path.join(os.tmpdir(), 'tidegate-'))
      t.after(() => rm(folder, { recursive: true }))
      const document = path.join(folder, 'tidegate.json')
      const told = {
        version: 1,
        store: { url, prefix: prefix(), deadline: '20s' },
        rules: { login: { limits, on_error: 'deny' } },
        routes: [{ path: '/login', rules: 'login', key: 'ip' }],
      }
      await writeFile(document, JSON.stringify(told))
      const counts = await together([await node({ document }), await python('django', document)])
      assert.equal(counts.length, 3)
    })
  }
}

test('worker threads', async () => {
  const limiter = { rules: { hammer: `${LIMIT}/366d` }, url: stores.redis.url, prefix: prefix(), deadline: '20s' }
  const thread = () => async () => {
    const worker = new Worker(NODE, { workerData: { calls: CALLS, limiter } })
    return new Promise((resolve, reject) => worker.on('message', (count) => resolve([count])).on('error', reject))
  }
  await together([thread(), thread(), thread(), thread()])
})
