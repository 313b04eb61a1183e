// What the package says by itself, from the first limiter on.
import assert from 'node:assert/strict'
import test from 'node:test'

import { runNode } from './support/processes.mjs'

const OPEN = "{ url: 'redis://127.0.0.1:1', rules: { login: '5/m' } }"
const DOCUMENT = `{ version: 1, store: { url: 'redis://127.0.0.1:1' }, rules: { login: '5/m' },
  routes: [{ path: '/login', rules: 'login', key: 'ip' }] }`

for (const [what, source] of [
  ['limiter', `await new Limiter(${OPEN}).check('login', 'alice')`],
  [
    'policy',
    `const policy = new Policy(${DOCUMENT})
    await policy.admit(policy.request('GET', '/login'), { peer: '203.0.113.7' })`,
  ],
]) {
  test(`the first ${what} of a process tells that requests pass while the store fails`, async () => {
    const imported = "import { Limiter, Policy, setLogger } from 'tidegate'\n"
    const told = await runNode(imported + source, {}, { env: { NODE_NO_WARNINGS: '0' } })
    assert.equal(told.code, 0)
    assert.match(
      told.err,
      /\[tidegate::limiter::rules\] TidegateWarning: while the store fails, requests pass under login/,
    )
    const taken = await runNode(`${imported}setLogger(({ level, text }) => console.log(level, text))\n${source}`)
    assert.deepEqual([taken.code, taken.err], [0, ''])
    assert.match(taken.out, /^warn while the store fails, requests pass under login/m)
  })
}
