// Checks one key as often as it is told, and tells how many were admitted: a process of `node:cluster` or a worker thread.
//
//     node hammer.mjs '{"processes": 2, "calls": 1000, "limiter": {...}}'      one line of output for each process
//
// With `document` instead of `limiter` it is requests of a policy. It begins at a line of input.
import cluster from 'node:cluster'
import { once } from 'node:events'
import { isMainThread, parentPort, workerData } from 'node:worker_threads'

import { Limiter, Policy } from 'tidegate'

const given = isMainThread ? JSON.parse(process.argv[2]) : workerData

if (!isMainThread) {
  parentPort.postMessage(await admitted(given))
} else if (cluster.isPrimary) {
  const workers = Array.from({ length: given.processes }, () => cluster.fork())
  await Promise.all(workers.map((worker) => once(worker, 'message')))
  console.log('ready')
  await once(process.stdin, 'data')
  process.stdin.destroy()
  const counts = workers.map((worker) => once(worker, 'message'))
  for (const worker of workers) worker.send('go')
  for (const [count] of await Promise.all(counts)) console.log(count)
  cluster.disconnect()
} else {
  process.send('ready')
  await once(process, 'message')
  process.send(await admitted(given))
}

async function admitted({ calls, limiter, document }) {
  const call = limiter ? checks(limiter) : requests(document)
  let count = 0
  for (let done = 0; done < calls; done += 100) {
    const answers = await Promise.all(Array.from({ length: 100 }, call))
    count += answers.filter(({ allowed }) => allowed).length
  }
  return count
}

/** Nothing but the store decides; a refusal may be remembered. */
function seen(decision) {
  if (decision.origin !== 'store' && decision.origin !== 'deny_cache') throw decision.failure
  return decision
}

function checks(options) {
  const limiter = new Limiter(options)
  return async () => seen(await limiter.check('hammer', 'alice'))
}

function requests(document) {
  const policy = new Policy(document)
  const told = { peer: '203.0.113.7', headers: [] }
  return async () => {
    const admission = await policy.admit(policy.request('POST', '/login'), told)
    admission.decisions.forEach(seen)
    return admission
  }
}
