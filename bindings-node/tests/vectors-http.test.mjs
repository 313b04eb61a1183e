// The vectors of whole requests (tests/vectors/README.md), through the addon.
import assert from 'node:assert/strict'
import { once } from 'node:events'
import { createServer } from 'node:net'
import test from 'node:test'

import { Policy, TidegateError } from 'tidegate'
import { Clock } from '../dist/native.js'
import { prefix, shared } from './support/servers.mjs'
import { cases, part } from './support/vectors.mjs'

const stores = { memory: undefined, redis: await shared('server'), cluster: await shared('cluster') }

/** The case's document on a store; without a URL it is memory. */
async function documentOf({ store, rules = { r: '100/m' }, http = {}, steps = [], routes }, url) {
  const on = { deadline: '20s', prefix: prefix(), ...(url && { url }) }
  if (store === 'down') on.url = `redis://127.0.0.1:${await freePort()}`
  const route = { prefix: '/', rules: Object.keys(rules), key: 'ip' }
  if (steps.some(({ cost = 1 }) => cost !== 1)) route.cost = 'app:cost'
  return JSON.stringify({ version: 1, store: on, rules, http, routes: routes ?? [route] })
}

async function freePort() {
  const server = createServer().listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address()
  server.close()
  await once(server, 'close')
  return port
}

/** The flat list that Node's own parser makes of a request's fields, in which each character is a byte. */
function linesOf({ headers = [] }) {
  return headers.flatMap(([name, value]) => [name, Buffer.from(part(value)).toString('latin1')])
}

/** What the work tells, or the error's code. */
async function seen(work) {
  try {
    return await work()
  } catch (error) {
    if (!(error instanceof TidegateError)) throw error
    return { error: error.code }
  }
}

test('addresses', async () => {
  for (const one of cases('addresses')) {
    const found = await seen(async () => {
      const request = new Policy(await documentOf(one), { format: 'json' }).request('GET', '/')
      const told = { peer: one.peer ?? null, headers: linesOf(one) }
      return { address: request.clientAddress(told), key: request.clientKey(told) }
    })
    assert.deepEqual(found, one.expect, one.name)
  }
})

test('routes', async () => {
  for (const one of cases('routes')) {
    const found = await seen(async () => {
      const policy = new Policy(await documentOf(one), { format: 'json' })
      return (one.requests ?? []).map(({ method, path }) => policy.request(method, path).route)
    })
    const expected = one.error ? { error: one.error } : one.requests.map(({ route }) => route ?? null)
    assert.deepEqual(found, expected, one.name)
  }
})

for (const [store, servers] of Object.entries(stores)) {
  for (const name of ['admissions', 'http_responses']) {
    test(`${name} on ${store}`, async () => {
      for (const one of cases(name)) await play(one, servers?.url)
    })
  }
}

async function play(one, url) {
  const clock = new Clock(0, true)
  const policy = new Policy(await documentOf(one, url), { format: 'json', clock })
  try {
    for (const [number, step] of one.steps.entries()) {
      clock.micros = step.at_ms * 1000
      const found = await seen(() => answered(policy, step))
      assert.deepEqual(found, expected(step), `${one.name}, step ${number}`)
    }
  } finally {
    policy.close()
  }
}

function expected({ expect }) {
  const { headers } = expect
  return headers && !Array.isArray(headers) ? { ...expect, headers: lowered(Object.entries(headers)) } : expect
}

function lowered(pairs) {
  return Object.fromEntries(pairs.map(([name, value]) => [name.toLowerCase(), value]))
}

async function answered(policy, step) {
  const { method, path, peer = null, user, values = {}, cost, yes = [] } = step
  const admission = await policy.admit(policy.request(method, path), {
    peer,
    headers: linesOf(step),
    user: user == null ? null : part(user),
    values: { ...values, ...(cost !== undefined && { cost }) },
    answers: yes,
  })
  const found = {}
  for (const field of Object.keys(step.expect)) found[field] = await told(admission, field, step)
  if (!('settled' in found) && 'settle' in step) await admission.settle(step.settle)
  return found
}

/** A field of the answer as the files have it. */
async function told(admission, field, { settle = 200 }) {
  switch (field) {
    case 'remaining':
      return admission.decisions.map(({ remaining }) => remaining)
    case 'settled':
      return admission.settle(settle)
    case 'headers':
      return lowered(admission.headers)
    case 'body': {
      const isJson = lowered(admission.headers)['content-type']?.endsWith('json')
      return isJson ? JSON.parse(admission.body) : admission.body
    }
    default:
      return admission[field]
  }
}
