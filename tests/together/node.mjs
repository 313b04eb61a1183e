// node.mjs DOCUMENT CALLS: see tests/src/bin/together.rs.
import { once } from 'node:events'

import { Limiter } from '../../bindings-node/dist/index.js'

const [document, calls] = process.argv.slice(2)
const limiter = new Limiter({ document })
console.log('ready')
await once(process.stdin, 'data')
process.stdin.destroy()
let admitted = 0
for (let done = 0; done < Number(calls); done += 100) {
  const decisions = await Promise.all(Array.from({ length: 100 }, () => limiter.check('hammer', 'alice')))
  admitted += decisions.filter(({ allowed }) => allowed).length
}
console.log(admitted)
