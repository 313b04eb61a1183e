// Option by option beside express-rate-limit itself: the same requests to two applications that differ in the limiter
// alone. Where the answers differ, docs/migrating-express-rate-limit.md says so, in the row of that option; a row that
// says "the same" has answers that are the same.
import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import path from 'node:path'
import { describe, test } from 'node:test'
import * as theirs from 'express-rate-limit'
import * as ours from 'tidegate/express'
import { ROOT } from './support/servers.mjs'
import { keeper, send, serve, until, VERSIONS } from './support/express.mjs'

const PAGE = readFileSync(path.join(ROOT, 'docs', 'migrating-express-rate-limit.md'), 'utf8')

/** What the page says of each option: `{ windowMs: 'the same, ...' }`. */
const ROWS = new Map(
  [...PAGE.matchAll(/^\| (`.*?) \| (.*?) \|$/gm)].flatMap(([, names, said]) =>
    [...names.matchAll(/`(\w+)[^`]*`/g)].map(([, name]) => [name, said]),
  ),
)

const CLIENT = '192.0.2.1'
const get = (path, headers = {}) => ({ path, headers: { 'X-Forwarded-For': CLIENT, ...headers } })
const times = (count, request = get('/')) => Array.from({ length: count }, () => request)

/** Of a refusal that nobody has worded: the body is the core's, by what the client accepts. */
const REFUSAL = ['body', 'content-type', 'content-length', 'vary']
/** No cache keeps a refusal here. */
const ALWAYS = ['cache-control']
const IN_MESSAGES = { message: 'wait' }

/**
 * Each: the option, the options, the requests, where refusals differ beside `cache-control`, and what the client has
 * used after each response where some is given back then.
 */
const CASES = [
  ['windowMs', { windowMs: 120_000, ...IN_MESSAGES }, times(6)],
  ['windowMs', { windowMs: 900_000, standardHeaders: 'draft-6', ...IN_MESSAGES }, times(6)],
  ['limit', { limit: 2, ...IN_MESSAGES }, times(3)],
  ['limit', { limit: 0, ...IN_MESSAGES }, times(2), ['retry-after', 'x-ratelimit-reset']],
  [
    'limit',
    { limit: (request) => Number(request.query.limit), ...IN_MESSAGES },
    ['2', '2', '4', '4', '2'].map((limit) => get(`/?limit=${limit}`)),
  ],
  ['limit', { limit: async () => 1, ...IN_MESSAGES }, times(2)],
  ['max', { max: 1, ...IN_MESSAGES }, times(2)],
  ['message', {}, times(6), REFUSAL],
  ['message', { limit: 1, message: 'too much' }, times(2)],
  ['message', { limit: 1, message: { error: 'too much' } }, times(2)],
  ['message', { limit: 1, message: Buffer.from('too much') }, times(2)],
  ['message', { limit: 1, message: (request) => `too much of ${request.path}` }, times(2)],
  ['message', { limit: 1, message: async () => ({ error: 'too much' }) }, times(2)],
  ['statusCode', { limit: 1, statusCode: 420 }, times(2)],
  [
    'handler',
    { limit: 1, handler: (request, response, next, { statusCode }) => response.status(statusCode).send('mine') },
    times(2),
  ],
  ['handler', { limit: 1, handler: (request, response, next) => next() }, times(2)],
  [
    'handler',
    {
      limit: 1,
      handler: (request, response, next, { message, windowMs, limit }) => response.json({ message, windowMs, limit }),
    },
    times(2),
  ],
  ['legacyHeaders', { legacyHeaders: false, limit: 1, ...IN_MESSAGES }, times(2), ['retry-after']],
  ['legacyHeaders', { legacyHeaders: true, limit: 1, ...IN_MESSAGES }, times(2)],
  ['headers', { headers: true, limit: 1, ...IN_MESSAGES }, times(2)],
  ['standardHeaders', { standardHeaders: true, limit: 1, ...IN_MESSAGES }, times(2)],
  ['standardHeaders', { standardHeaders: false, limit: 1, ...IN_MESSAGES }, times(2)],
  ['standardHeaders', { standardHeaders: 'draft-6', legacyHeaders: false, limit: 1, ...IN_MESSAGES }, times(2)],
  ['standardHeaders', { standardHeaders: 'draft-7', legacyHeaders: false, limit: 1, ...IN_MESSAGES }, times(2)],
  [
    'standardHeaders',
    { standardHeaders: 'draft-8', legacyHeaders: false, limit: 1, windowMs: 3_600_000, ...IN_MESSAGES },
    times(2),
  ],
  ['identifier', { standardHeaders: 'draft-8', identifier: 'api', limit: 1, ...IN_MESSAGES }, times(2)],
  ['retryAfter', { retryAfter: 7, limit: 1, ...IN_MESSAGES }, times(2)],
  ['retryAfter', { retryAfter: async () => 9, limit: 1, ...IN_MESSAGES }, times(2)],
  ['requestPropertyName', { requestPropertyName: 'limits', limit: 2, ...IN_MESSAGES }, times(3, get('/figures'))],
  [
    'skipFailedRequests',
    { skipFailedRequests: true, limit: 1, ...IN_MESSAGES },
    [get('/?status=404'), get('/?status=500'), get('/'), get('/')],
    [],
    [0, 0, 1, 1],
  ],
  [
    'skipSuccessfulRequests',
    { skipSuccessfulRequests: true, limit: 1, ...IN_MESSAGES },
    [get('/'), get('/?status=302'), get('/?status=404'), get('/')],
    [],
    [0, 0, 1, 1],
  ],
  [
    'requestWasSuccessful',
    {
      skipFailedRequests: true,
      requestWasSuccessful: (request, response) => response.statusCode === 404,
      limit: 1,
      ...IN_MESSAGES,
    },
    [get('/'), get('/?status=404'), get('/')],
    [],
    [0, 1, 1],
  ],
  [
    'requestWasSuccessful',
    { skipSuccessfulRequests: true, requestWasSuccessful: async () => true, limit: 1, ...IN_MESSAGES },
    times(3),
    [],
    [0, 0, 0],
  ],
  [
    'keyGenerator',
    { keyGenerator: (request) => request.get('key'), limit: 1, ...IN_MESSAGES },
    [get('/', { key: 'a' }), get('/', { key: 'b' }), get('/', { key: 'a' })],
  ],
  ['keyGenerator', { keyGenerator: async () => 'everybody', limit: 1, ...IN_MESSAGES }, times(2)],
  ['keyGenerator', { keyGenerator: () => undefined, limit: 1, ...IN_MESSAGES }, times(2)],
  [
    'ipv6Subnet',
    { limit: 1, ...IN_MESSAGES },
    ['2001:db8:0:100::1', '2001:db8:0:1ff::2', '2001:db8:0:200::1'].map((client) =>
      get('/', { 'X-Forwarded-For': client }),
    ),
  ],
  [
    'ipv6Subnet',
    { ipv6Subnet: 64, limit: 1, ...IN_MESSAGES },
    ['2001:db8:0:100::1', '2001:db8:0:100::2', '2001:db8:0:101::1'].map((client) =>
      get('/', { 'X-Forwarded-For': client }),
    ),
  ],
  [
    'ipv6Subnet',
    { ipv6Subnet: false, limit: 1, ...IN_MESSAGES },
    ['2001:db8::1', '2001:db8::2', '2001:db8::1'].map((client) => get('/', { 'X-Forwarded-For': client })),
  ],
  [
    'ipv6Subnet',
    { ipv6Subnet: async () => 48, limit: 1, ...IN_MESSAGES },
    ['2001:db8:0:1::1', '2001:db8:0:ff00::2', '2001:db8:1::1'].map((client) => get('/', { 'X-Forwarded-For': client })),
  ],
  [
    'skip',
    { skip: (request) => request.path === '/free', limit: 1, ...IN_MESSAGES },
    [get('/free'), get('/'), get('/free'), get('/')],
  ],
  ['skip', { skip: async () => true, limit: 1 }, times(2)],
  ['passOnStoreError', { passOnStoreError: true, limit: 1, ...IN_MESSAGES }, times(2)],
  ['passOnStoreError', { passOnStoreError: false, limit: 1, ...IN_MESSAGES }, times(2)],
  ['validate', { validate: false, limit: 1, ...IN_MESSAGES }, times(2)],
  ['logger', { logger: { error() {}, warn() {} }, limit: 1, ...IN_MESSAGES }, times(2)],
]

/** Options whose answers no request can compare, and where they are tested. */
const ELSEWHERE = { store: 'express-checks.test.mjs' }

/** What is compared of an answer: without what is of the connection, or of the moment. */
function compared({ status, headers, body }) {
  const { date, connection, 'keep-alive': keepAlive, 'x-powered-by': poweredBy, etag, ...rest } = headers
  return { status, body, ...rest, ...forms(rest) }
}

/** Draft 8 in the form of draft 10, which leaves out white space and the hash of the key. */
function forms(headers) {
  const found = {}
  for (const name of ['ratelimit', 'ratelimit-policy']) {
    if (headers[name]?.startsWith('"')) found[name] = headers[name].replaceAll('; ', ';').replace(/;pk=:.*?:/, '')
  }
  return found
}

/** Seconds may have passed between the two: numbers that tell of time may be 2 apart. */
function isSame(name, one, other) {
  if (one === other) return true
  if (typeof one !== 'string' || typeof other !== 'string' || !/reset|retry-after|^ratelimit$|body/.test(name))
    return false
  const [numbers, others] = [one, other].map((text) => text.match(/[\d.]+/g) ?? [])
  const shape = (text) => text.replaceAll(/[\d.]+/g, '#')
  const near = (number, at) => Math.abs(Number(number) - Number(others[at])) <= 2
  return shape(one) === shape(other) && numbers.length === others.length && numbers.every(near)
}

function differences(one, other) {
  const names = new Set([...Object.keys(one), ...Object.keys(other)])
  return [...names].filter((name) => !isSame(name, one[name], other[name])).sort()
}

function application(express, { rateLimit }, options) {
  const app = express().set('trust proxy', 1)
  const limiter = rateLimit({ validate: { default: false }, ...options })
  app.use(limiter)
  app.get('/figures', (request, response) => {
    const { limit, used, remaining, resetTime, key } = request.limits
    response.json({ limit, used, remaining, key, resetTime: Math.round(resetTime / 1000) })
  })
  app.use((request, response) => response.status(Number(request.query.status ?? 200)).send('ok'))
  return { app, limiter }
}

for (const [version, express] of Object.entries(VERSIONS)) {
  describe(version, () => {
    for (const [option, options, requests, differ = [], hits = []] of CASES) {
      const told = JSON.stringify(options, (key, value) => (typeof value === 'function' ? '=>' : value))
      test(`${option}: ${told}`, async (t) => {
        const [there, here] = [theirs, ours].map((library) => application(express, library, options))
        const [where, whereHere] = [await serve(t, there.app), await serve(t, here.app)]
        for (const [place, request] of requests.entries()) {
          const [one, other] = [compared(await send(where, request)), compared(await send(whereHere, request))]
          const expected = other['cache-control'] === 'no-store' ? [...ALWAYS, ...differ] : []
          const found = differences(one, other).filter((name) => !expected.includes(name))
          assert.deepEqual(found, [], `${JSON.stringify(one)}\n${JSON.stringify(other)}`)
          if (hits[place] !== undefined) await settled(hits[place], here.limiter, there.limiter)
        }
      })
    }

    test('resetKey and getKey', async (t) => {
      for (const library of [theirs, ours]) {
        const { app, limiter } = application(express, library, { limit: 1, keyGenerator: () => 'a' })
        const where = await serve(t, app)
        assert.equal(await limiter.getKey('a'), undefined)
        assert.deepEqual([(await send(where)).status, (await send(where)).status], [200, 429])
        const { totalHits, resetTime } = await limiter.getKey('a')
        assert.equal(totalHits, library === theirs ? 2 : 1)
        assert.ok(resetTime.getTime() > Date.now())
        await limiter.resetKey('a')
        assert.equal((await send(where)).status, 200)
      }
    })

    test('the same set-ups are told of', async (t) => {
      const codes = { theirs: [], ours: [] }
      for (const [name, library, prefix] of [
        ['theirs', theirs, 'ERR_ERL_'],
        ['ours', ours, 'ERR_TIDEGATE_'],
      ]) {
        const ask = async (options, trust, headers = {}) => {
          const logger = keeper()
          const app = express()
            .set('trust proxy', trust)
            .use(library.rateLimit({ logger, ...options }))
          const where = await serve(t, app)
          await send(where, { headers })
          await send(where, { headers })
          codes[name].push(logger.codes.map((code) => code.replace(prefix, '')))
        }
        await ask({}, true)
        await ask({}, false, { 'X-Forwarded-For': '192.0.2.1' })
        await ask({}, false, { Forwarded: 'for=192.0.2.1' })
        await ask({}, 1, { 'X-Forwarded-For': 'rubbish' })
        await ask({}, 1, { 'X-Forwarded-For': '192.0.2.1' })
        await ask({ keyGenerator: (req) => req.ip }, false)
        await ask({ keyGenerator: (req) => library.ipKeyGenerator(req.ip), ipv6Subnet: 56 }, false)
        await ask({ ipv6Subnet: 128 }, false)
        await ask({ validate: { nothing: true } }, false)
        await ask({ validate: false }, true, { 'X-Forwarded-For': '192.0.2.1' })
        await ask({ validate: { trustProxy: false } }, true)
      }
      assert.deepEqual(codes.ours, codes.theirs)
    })
  })
}

/** What is given back is so after the response. Refusals count for express-rate-limit, so 1 is 1 or more. */
async function settled(expected, ...limiters) {
  for (const limiter of limiters) {
    await until(async () => Math.min((await limiter.getKey(CLIENT))?.totalHits ?? 0, 1) === expected)
  }
}

test('the page has a row for every option, and says the same where it is', () => {
  const options = [...new Set([...CASES.map(([option]) => option), ...Object.keys(ELSEWHERE)])]
  for (const option of options) assert.ok(ROWS.has(option), `no row for ${option}`)
  for (const option of options.filter((option) => !(option in ELSEWHERE))) {
    const differs = CASES.some(([name, , , differ = []]) => name === option && differ.length > 0)
    if (differs) assert.match(ROWS.get(option), /; /, `the row of ${option} does not say what differs`)
    else assert.match(ROWS.get(option), /^the same/, option)
  }
})

test('addresses as keys are the same', () => {
  const addresses = [
    '192.0.2.1',
    '::1',
    '::',
    '::ffff:192.0.2.1',
    '::FFFF:c000:0201',
    '::192.0.2.1',
    '2001:DB8::1',
    '2001:db8:0:0:1:0:0:1',
    '2001:0db8:0001:0000:0000:0ab9:C0A8:0102',
    '1:0:0:2:0:0:0:3',
    'fe80::1',
    'ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff',
    '64:ff9b::192.0.2.33',
    'rubbish',
    '',
    '1:2:3:4:5:6:7::',
    '::2:3:4:5:6:7:8',
  ]
  let seed = 1
  const random = () => (seed = (seed * 48_271) % 0x7fffffff)
  for (let made = 0; made < 500; made++) {
    const group = () => (random() % 3 === 0 ? '0' : (random() % 0x10000).toString(16))
    addresses.push(Array.from({ length: 8 }, group).join(':'))
  }
  for (const address of addresses) {
    for (const subnet of [56, 64, 48, 32, 60, 57, 127, 128, 1, false]) {
      assert.equal(ours.ipKeyGenerator(address, subnet), theirs.ipKeyGenerator(address, subnet), `${address} ${subnet}`)
    }
    assert.equal(ours.ipKeyGenerator(address), theirs.ipKeyGenerator(address), address)
  }
})
