// A worker thread that checks without end. It tells its parent when the first answers have come.
import { setImmediate as turn } from 'node:timers/promises'
import { parentPort, workerData } from 'node:worker_threads'

import { Limiter } from 'tidegate'

const { url, prefix, rounds = Infinity, ends } = workerData
const limiter = new Limiter({ rules: { a: '1000000/s token_bucket' }, ...(url && { url }), prefix, deadline: '20s' })

const check = (call) => limiter.check('a', `user ${call % 10}`)
let admitted = 0
for (let round = 0; round < rounds; round += 1) {
  const decisions = await Promise.all(Array.from({ length: 500 }, (_, call) => check(call)))
  admitted += decisions.filter(({ allowed }) => allowed).length
  if (round === 0) parentPort.postMessage(admitted)
  await turn()
}
for (let call = 0; call < 500; call += 1) check(call)
if (ends === 'exit') process.exit(0)
if (ends === 'throw') throw new Error('mine')
