// How limiters are set up wrongly, and what is said then.
import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { createRequire } from 'node:module'
import { fileURLToPath } from 'node:url'
import { test } from 'node:test'
import { promisify } from 'node:util'
import express from 'express'
import { Policy } from 'tidegate'
import * as module from 'tidegate/express'
import { FakeClock } from 'tidegate/testing'
import './support/servers.mjs'
import { keeper, send, serve } from './support/express.mjs'

const { ipKeyGenerator, rateLimit, SetupError } = module
const PACKAGE = fileURLToPath(new URL('..', import.meta.url))
const POLICY = { version: 1, rules: { a: '1/m' }, routes: [{ path: '/', rules: 'a', key: 'ip' }] }

test('an option that is not known is refused, with what to write', () => {
  for (const [options, hint] of [
    [{ windosMs: 1 }, 'write windowMs'],
    [{ windowms: 1 }, 'write windowMs'],
    [{ keygenerator: () => 'a' }, 'write keyGenerator'],
    [{ skipFailedRequest: true }, 'write skipFailedRequests'],
    [{ window: 1 }, 'write windowMs'],
    [{ onLimitReached: () => {} }, 'write handler'],
    [{ trustProxy: 1 }, "write app.set('trust proxy', ...)"],
    [{ policy: POLICY, usr: () => 'a' }, 'write user'],
    [{ policy: POLICY, keyGenerator: () => 'a' }, 'write it into the document'],
  ]) {
    const isRight = (error) =>
      error instanceof SetupError && error.code === 'ERR_TIDEGATE_UNKNOWN_OPTION' && error.hint.startsWith(hint)
    assert.throws(() => rateLimit(options), isRight, hint)
    for (const validate of [false, { knownOptions: false }])
      rateLimit({ ...options, validate, logger: keeper() }).close()
  }
  assert.throws(() => rateLimit({ sdlkfj: 1 }), /the options are .*windowMs/)
  // One that is undefined was not written.
  rateLimit({ windosMs: undefined, max: undefined }).close()
})

test('what cannot work is refused, with what to write', () => {
  for (const [options, code, hint] of [
    [{ store: {} }, 'ERR_TIDEGATE_STORE', /url: 'redis/],
    [{ store: {}, validate: false }, 'ERR_TIDEGATE_STORE', /policy/],
    [{ limit: 5, max: 6 }, 'ERR_TIDEGATE_CONFLICTING_OPTIONS', /limit/],
    [{ legacyHeaders: true, headers: false }, 'ERR_TIDEGATE_CONFLICTING_OPTIONS', /legacyHeaders/],
    [{ onError: 'deny', passOnStoreError: true }, 'ERR_TIDEGATE_CONFLICTING_OPTIONS', /onError/],
    [{ name: 'a', identifier: 'b' }, 'ERR_TIDEGATE_CONFLICTING_OPTIONS', /name/],
    [{ windowMs: 1, policy: new Policy(POLICY), clock: new FakeClock() }, 'ERR_TIDEGATE_CONFLICTING_OPTIONS', /one of/],
    [{ windowMs: 1, policy: POLICY }, 'ERR_TIDEGATE_TYPE', /Policy/],
    [{ limit: 1, policy: 'limits.toml' }, 'ERR_TIDEGATE_TYPE', /Policy/],
    [{ identifier: () => 'a' }, 'ERR_TIDEGATE_IDENTIFIER', /text/],
    [{ windowMs: 0 }, 'ERR_TIDEGATE_WINDOW', /'15m'/],
    [{ windowMs: -1 }, 'ERR_TIDEGATE_WINDOW', /'15m'/],
    [{ windowMs: NaN }, 'ERR_TIDEGATE_WINDOW', /'15m'/],
    [{ windowMs: Infinity }, 'ERR_TIDEGATE_WINDOW', /'15m'/],
    [{ windowMs: 0.5 }, 'ERR_TIDEGATE_WINDOW', /'15m'/],
    [{ windowMs: new Date() }, 'ERR_TIDEGATE_WINDOW', /'15m'/],
    ['5/m', 'ERR_TIDEGATE_TYPE', /an object/],
    [5, 'ERR_TIDEGATE_TYPE', /an object/],
    [{ limit: '5' }, 'ERR_TIDEGATE_TYPE', /limit: Number/],
    [{ max: null }, 'ERR_TIDEGATE_TYPE', /max: Number/],
    [{ cost: '5' }, 'ERR_TIDEGATE_TYPE', /cost: Number/],
    [{ keyGenerator: 'ip' }, 'ERR_TIDEGATE_TYPE', /keyGenerator: \(req\)/],
    [{ policy: POLICY, user: 'alice' }, 'ERR_TIDEGATE_TYPE', /user: \(req\)/],
    [{ statusCode: () => 420 }, 'ERR_TIDEGATE_TYPE', /Number/],
    [{ requestPropertyName: '' }, 'ERR_TIDEGATE_PROPERTY', /a name/],
    [{ requestPropertyName: 'headers' }, 'ERR_TIDEGATE_PROPERTY', /'headers', which requests have/],
    [{ policy: POLICY, requestPropertyName: '__proto__' }, 'ERR_TIDEGATE_PROPERTY', /requests have/],
    [{ policy: POLICY, requestPropertyName: Symbol('a') }, 'ERR_TIDEGATE_PROPERTY', /Symbol\(a\)/],
    [{ statusCode: 99 }, 'ERR_TIDEGATE_STATUS', /400/],
    [{ windowMs: '15' }, 'invalid_rule', /15s/],
    [{ windowMs: '400d' }, 'invalid_rule', /366/],
    [{ limit: -1 }, 'invalid_document', /./],
    [{ limit: 10_000_001 }, 'invalid_rule', /10,?_?000,?_?000/],
    [{ limit: 1.5 }, 'invalid_document', /./],
    [{ limit: 5, cost: 6 }, 'invalid_document', /5/],
    [{ cost: 0 }, 'invalid_document', /1 or more/],
    [{ algorithm: 'leaky' }, 'invalid_rule', /token_bucket/],
    [{ onError: 'pass' }, 'invalid_document', /allow/],
    [{ standardHeaders: 'draft-9' }, 'invalid_document', /draft-10/],
    [{ ipv6Subnet: 24 }, 'invalid_document', /32/],
    [{ name: 'x'.repeat(65) }, 'invalid_rule', /64/],
    [{ url: 'http://127.0.0.1' }, 'invalid_document', /redis:/],
    [{ prefix: 'a b' }, 'invalid_document', /./],
  ]) {
    assert.throws(
      () => rateLimit(options),
      (error) => {
        assert.deepEqual(
          [error.code, hint.test(`${error.hint} ${error.message}`)],
          [code, true],
          `${JSON.stringify(options)}: ${error}`,
        )
        return true
      },
    )
  }
})

test('checks are told once, to the logger, or not if they are off', async (t) => {
  for (const [validate, expected] of [
    [true, ['ERR_TIDEGATE_PERMISSIVE_TRUST_PROXY']],
    [{}, ['ERR_TIDEGATE_PERMISSIVE_TRUST_PROXY']],
    [{ trustProxy: false }, []],
    [{ default: false, trustProxy: true }, ['ERR_TIDEGATE_PERMISSIVE_TRUST_PROXY']],
    [{ default: false }, []],
    [false, []],
  ]) {
    const logger = keeper()
    const where = await serve(t, express().set('trust proxy', true).use(rateLimit({ validate, logger })))
    for (let sent = 0; sent < 3; sent++) await send(where)
    assert.deepEqual(logger.codes, expected)
  }
})

test('a proxy may come late', async (t) => {
  const logger = keeper()
  const where = await serve(t, express().use(rateLimit({ logger })))
  for (let sent = 0; sent < 20; sent++) await send(where)
  assert.deepEqual(logger.codes, [])
  await send(where, { headers: { 'X-Forwarded-For': '192.0.2.1' } })
  assert.deepEqual(logger.codes, ['ERR_TIDEGATE_UNEXPECTED_X_FORWARDED_FOR'])
})

test('what can be seen of a key generator and of ipv6Subnet', () => {
  for (const [options, expected] of [
    [{ keyGenerator: (req) => req.ip }, ['ERR_TIDEGATE_KEY_GEN_IPV6']],
    [{ keyGenerator: (request) => request.user ?? request.ip }, ['ERR_TIDEGATE_KEY_GEN_IPV6']],
    [{ keyGenerator: (req) => req.user ?? ipKeyGenerator(req.ip) }, []],
    [{ keyGenerator: (req) => req.ipAddress }, []],
    [{ keyGenerator: () => 'a', ipv6Subnet: 56 }, ['ERR_TIDEGATE_IPV6SUBNET_OR_KEYGENERATOR']],
    [{ ipv6Subnet: 65 }, ['ERR_TIDEGATE_IPV6_SUBNET']],
    [{ ipv6Subnet: 64 }, []],
    [{ ipv6Subnet: false }, []],
    [{ validate: { nothing: true } }, ['ERR_TIDEGATE_UNKNOWN_VALIDATION']],
    [{ validate: { creationStack: false, positiveHits: false, unsharedStore: true } }, []],
  ]) {
    const logger = keeper()
    rateLimit({ ...options, logger }).close()
    assert.deepEqual(logger.codes, expected, String(options.keyGenerator))
  }
})

// Told once in a process, so each version has one of its own.
const IN_HANDLER = `
import express from 'VERSION'
import { once } from 'node:events'
import { rateLimit } from 'tidegate/express'
const app = express()
app.get('/', (request, response, next) => rateLimit({ windowMs: 1000, limit: 1 })(request, response, next))
app.use((request, response) => response.send('ok'))
const server = app.listen(0, '127.0.0.1')
await once(server, 'listening')
for (let sent = 0; sent < 3; sent++) await fetch('http://127.0.0.1:' + server.address().port)
server.closeAllConnections()
server.close()
`

test('a limiter that is made in a handler is told, once, and the process ends by itself', async () => {
  for (const version of ['express', 'express4']) {
    const args = ['--input-type=module', '--eval', IN_HANDLER.replace('VERSION', version)]
    const { stdout, stderr } = await promisify(execFile)(process.execPath, args, { cwd: PACKAGE, timeout: 60_000 })
    assert.equal(stdout, '')
    assert.equal(stderr.match(/code: 'ERR_TIDEGATE_CREATED_IN_REQUEST_HANDLER'/g)?.length, 1, stderr)
  }
})

test('import and require are one module', () => {
  const required = createRequire(import.meta.url)('tidegate/express')
  assert.equal(required.rateLimit, rateLimit)
  assert.deepEqual(
    Object.keys(module)
      .filter((name) => name !== '__esModule')
      .sort(),
    ['SetupError', 'admissionOf', 'ipKeyGenerator', 'rateLimit'],
  )
})
