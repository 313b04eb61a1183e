// The types of documents, of metrics and of names are those of the core: TypeScript compares them with what the addon tells.
import assert from 'node:assert/strict'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { createRequire } from 'node:module'
import path from 'node:path'
import test from 'node:test'
import { Limiter, Policy } from 'tidegate'
import { rateLimit } from 'tidegate/koa'

import { PACKAGE, begin } from './support/processes.mjs'

const { names, schema: told } = createRequire(import.meta.url)('../native.js')
const schema = JSON.parse(told())
const literals = (values) => values.map((value) => JSON.stringify(value)).join(' | ')

/** What JSON a schema allows, as a type. */
function typeOf(schema) {
  if (schema.$ref !== undefined) return `types.${schema.$ref.split('/').pop()}`
  if (schema.anyOf !== undefined) return schema.anyOf.map(typeOf).join(' | ')
  if (schema.const !== undefined) return literals([schema.const])
  if (schema.enum !== undefined) return literals(schema.enum)
  return [schema.type].flat().map(ofKind).join(' | ')

  function ofKind(kind) {
    if (kind === 'integer') return 'number'
    if (kind === 'array') return `readonly (${typeOf(schema.items)})[]`
    if (kind !== 'object') return kind
    return schema.properties === undefined ? tableOf(schema.additionalProperties) : fieldsOf(schema)
  }
}

function tableOf(values) {
  return `{ readonly [name: string]: ${typeOf(values)} }`
}

function fieldsOf({ properties, required = [] }) {
  const field = ([name, schema]) => `readonly ${name}${required.includes(name) ? '' : '?'}: ${typeOf(schema)}`
  return `{ ${Object.entries(properties).map(field).join('; ')} }`
}

const HEAD = `import type * as types from 'tidegate'
type Same<A, B> = (<T>() => T extends A ? 1 : 2) extends <T>() => T extends B ? 1 : 2 ? true : false
function same<A, B>(_: Same<A, B>): void {}
function takes<A>(_: A): void {}
`

/** Compiles a module, and returns the lines of it that are refused. */
async function refused(lines) {
  const folder = await mkdtemp(path.join(PACKAGE, 'tests', '.page-'))
  try {
    await writeFile(path.join(folder, 'checked.ts'), HEAD + lines.join(';\n'))
    const config = { extends: '../types/tsconfig.json', include: ['checked.ts'] }
    await writeFile(path.join(folder, 'tsconfig.json'), JSON.stringify(config))
    const tsc = path.join(PACKAGE, 'node_modules', '.bin', 'tsc')
    const { out } = await begin(tsc, ['-p', folder, '--pretty', 'false']).ended
    assert.doesNotMatch(out, /^error/m)
    const before = HEAD.split('\n').length
    return [...new Set([...out.matchAll(/checked\.ts\((\d+),/g)].map(([, line]) => lines[line - before]))]
  } finally {
    await rm(folder, { recursive: true })
  }
}

test('documents have the fields of the schema', async () => {
  const tables = Object.entries({ Document: schema, ...schema.$defs })
  assert.ok(tables.length > 10)
  const line = ([name, table]) => `same<types.${name}, ${typeOf(table)}>(true)`
  assert.deepEqual(await refused(tables.map(line)), [])
})

test('a field more, a field less and a field of another type are found', async () => {
  const { Breaker } = schema.$defs
  const { wait, ...fewer } = Breaker.properties
  const wrong = [{ ...fewer, wait, more: wait }, fewer, { ...fewer, wait: { type: 'string' } }].map(
    (properties) => `same<types.Breaker, ${typeOf({ ...Breaker, properties })}>(true)`,
  )
  wrong.push(`same<types.Breaker, ${typeOf({ ...Breaker, required: ['wait'] })}>(true)`)
  assert.deepEqual(await refused(wrong), wrong)
})

test('codes of errors, origins, algorithms and outcomes are all that there are', async () => {
  const kinds = { errors: 'ErrorCode', origins: 'Origin', algorithms: 'Algorithm', outcomes: 'AdmissionOutcome' }
  const all = names()
  assert.deepEqual(Object.keys(all).sort(), Object.keys(kinds).sort())
  const line = ([what, kind]) => `same<types.${kind}, ${literals(all[what])}>(true)`
  assert.deepEqual(await refused(Object.entries(kinds).map(line)), [])
})

/** What a limiter has counted, whose server is away if there is one. */
async function counted(url) {
  const limiter = new Limiter({ rules: { a: '1/h' }, url, deadline: 20 })
  await limiter.check('a', 'x')
  const metrics = limiter.metrics()
  limiter.close()
  return metrics
}

test('metrics have the fields that are told', async () => {
  const [memory, server] = [await counted(), await counted('redis://127.0.0.1:1')]
  assert.ok(memory.decisions.length > 0)
  assert.ok(server.errors.length > 0 && server.nodes.length > 0)
  const document = { version: 1, rules: { a: '1/m' }, routes: [{ path: '/', rules: 'a', key: 'ip' }] }
  const policy = new Policy(document)
  await policy.admit(policy.request('GET', '/'), { peer: '203.0.113.7' })
  const requests = policy.metrics()
  assert.ok(requests.requests.length > 0)
  policy.close()

  const line = (kind, value) => `takes<types.${kind}>(${JSON.stringify(value)})`
  const right = [line('Metrics', memory), line('Metrics', server), line('PolicyMetrics', requests)]
  const { late_refunds: _, ...fewer } = memory
  const wrong = [
    line('Metrics', { ...memory, keys: '1' }),
    line('Metrics', { ...memory, more: 1 }),
    line('Metrics', fewer),
    line('PolicyMetrics', { ...requests, limiter: { ...server, nodes: [{ address: 'a' }] } }),
  ]
  assert.deepEqual(await refused([...right, ...wrong]), wrong)
})

test('the most that options take for a limit is what the schema has', () => {
  const { maximum } = schema.$defs.LimitTable.properties.limit
  rateLimit({ max: maximum }).close()
  assert.throws(() => rateLimit({ max: maximum + 1 }), { code: 'ERR_TIDEGATE_LIMIT' })
})
