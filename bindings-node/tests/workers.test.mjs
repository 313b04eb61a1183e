// Worker threads: each has the addon's queue for itself, and may end at any moment while others go on.
import assert from 'node:assert/strict'
import { once } from 'node:events'
import test from 'node:test'
import { setImmediate as turn } from 'node:timers/promises'
import { Worker } from 'node:worker_threads'

import { Limiter } from 'tidegate'
import { beginNode, end, runNode, within } from './support/processes.mjs'
import { asked, own, prefix, shared } from './support/servers.mjs'

const redis = await shared('server')
const stores = { memory: undefined, redis: redis.url }
const PROGRAM = new URL('./programs/worker.mjs', import.meta.url)
const PATIENCE_MS = 60_000

function begin(workerData) {
  return new Worker(PROGRAM, { workerData })
}

async function begun(workerData) {
  const worker = begin(workerData)
  const [admitted] = await within(PATIENCE_MS, once(worker, 'message'))
  assert.equal(admitted, 500)
  return worker
}

/** Checks of this thread, in turns, until the work is done. */
async function checking(limiter, work) {
  let done = false
  let checks = 0
  const load = (async () => {
    while (!done || checks === 0) {
      const decisions = await Promise.all(Array.from({ length: 100 }, () => limiter.check('a', 'main')))
      assert.ok(decisions.every(({ allowed }) => allowed))
      checks += decisions.length
      // In memory an answer is a matter of microtasks, and nothing else would have its turn.
      await turn()
    }
  })()
  try {
    await work()
  } finally {
    done = true
  }
  await within(PATIENCE_MS, load)
  return checks
}

for (const [store, url] of Object.entries(stores)) {
  const limiter = () =>
    new Limiter({ rules: { a: '1000000/s token_bucket' }, ...(url && { url }), prefix: prefix(), deadline: '20s' })

  test(`20 workers are terminated with checks in flight: ${store}`, async () => {
    const ours = limiter()
    await checking(ours, async () => {
      const workers = await Promise.all(Array.from({ length: 20 }, () => begun({ url, prefix: prefix() })))
      const codes = await within(PATIENCE_MS, Promise.all(workers.map((worker) => worker.terminate())))
      assert.deepEqual(new Set(codes), new Set([1]))
    })
    assert.ok((await ours.check('a', 'main')).allowed)
  })

  test(`workers are terminated while they load the addon: ${store}`, async () => {
    const ours = limiter()
    await checking(ours, async () => {
      for (let number = 0; number < 10; number += 1) {
        const worker = begin({ url, prefix: prefix() })
        await once(worker, 'online')
        await new Promise((resolve) => setTimeout(resolve, number * 5))
        await within(PATIENCE_MS, worker.terminate())
      }
    })
  })

  test(`30 workers end one after another, each in its way: ${store}`, async () => {
    const ours = limiter()
    const ways = [undefined, 'exit', 'throw']
    await checking(ours, async () => {
      for (let number = 0; number < 30; number += 1) {
        const ends = ways[number % ways.length]
        const worker = begin({ url, prefix: prefix(), rounds: 1, ends })
        const failed = ends === 'throw' ? once(worker, 'error') : undefined
        const exited = new Promise((resolve) => worker.once('exit', resolve))
        const code = await within(PATIENCE_MS, exited)
        assert.equal(code, ends === 'throw' ? 1 : 0)
        if (failed) assert.equal((await failed)[0].message, 'mine')
      }
    })
  })

  test(`a worker loads the addon while another one runs: ${store}`, async () => {
    const first = await begun({ url, prefix: prefix() })
    const second = await begun({ url, prefix: prefix() })
    await within(PATIENCE_MS, first.terminate())
    const third = await begun({ url, prefix: prefix() })
    await within(PATIENCE_MS, Promise.all([second.terminate(), third.terminate()]))
  })
}

// The addon goes with the last thread that has it; its own threads must be gone by then.
const LAST = `
  import { once } from 'node:events'
  import { Worker } from 'node:worker_threads'
  for (let turn = 0; turn < 10; turn += 1) {
    const { program, ...workerData } = given
    const workers = Array.from({ length: 3 }, () => new Worker(new URL(program), { workerData, execArgv: [] }))
    await Promise.all(workers.map((worker) => once(worker, 'message')))
    await Promise.all(workers.map((worker) => worker.terminate()))
  }
  console.log('done')
`
for (const [store, url] of Object.entries(stores)) {
  test(`the addon is loaded and left by workers alone: ${store}`, async () => {
    const ended = await runNode(LAST, { program: PROGRAM.href, url, prefix: prefix() })
    assert.deepEqual({ ...end(ended), out: ended.out }, { code: 0, signal: null, err: '', out: 'done\n' })
  })
}

test('a process that exits ends its workers, whose server hangs', async (t) => {
  const hurt = await own(t, 'server')
  const source = `
    import { once } from 'node:events'
    import { Worker } from 'node:worker_threads'
    const { program, ...workerData } = given
    const workers = Array.from({ length: 5 }, () => new Worker(new URL(program), { workerData, execArgv: [] }))
    await Promise.all(workers.map((worker) => once(worker, 'message')))
    console.log('ready')
    process.stdin.once('data', () => process.exit(5))`
  const given = { program: PROGRAM.href, url: hurt.url, prefix: prefix() }
  const { child, line, ended } = beginNode(source, given)
  assert.equal(await line(), 'ready')
  await hurt.do('pause')
  child.stdin.write('go\n')
  const told = await ended
  await hurt.do('resume')
  assert.deepEqual(end(told), { code: 5, signal: null, err: '' })
})

test('each thread of an event loop has a connection of its own, which alone carries its checks, until it ends', async (t) => {
  const server = await own(t, 'server')
  const clients = async () => (await asked(new URL(server.url).port, 'CLIENT LIST')).split('\n')
  const loops = async () => (await clients()).filter((client) => client.includes(' name=tidegate-loop '))
  const until = async (count) => {
    for (const started = Date.now(); (await loops()).length !== count; await turn()) {
      assert.ok(Date.now() - started < PATIENCE_MS, `${(await loops()).length} connections instead of ${count}`)
    }
  }
  const limiter = new Limiter({ rules: { a: '1000000/h' }, url: server.url, prefix: prefix(), deadline: '20s' })
  await limiter.ready()
  await limiter.check('a', 'first')
  await until(1)
  // The other connection tells the last command that came by it: now the script that is loaded.
  await limiter.ready()
  for (const count of [1, 3, 20, 500]) {
    await Promise.all(Array.from({ length: count }, (_, user) => limiter.check('a', `${count}/${user}`)))
  }
  const others = (await clients()).filter((client) => client.includes(' name=tidegate '))
  assert.ok(others.length > 0)
  for (const other of others) assert.ok(!other.includes(' cmd=eval'), other)
  const workers = await Promise.all([1, 2].map(() => begun({ url: server.url, prefix: prefix() })))
  await until(3)
  await Promise.all(workers.map((worker) => worker.terminate()))
  await until(1)
  limiter.close()
  await until(0)
})
