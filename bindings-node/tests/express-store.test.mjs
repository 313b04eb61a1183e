// Limiters on a Redis that is there, hung or gone, behind real applications.
import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import net from 'node:net'
import { fileURLToPath } from 'node:url'
import { test } from 'node:test'
import { promisify } from 'node:util'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import express5 from 'express'
import express4 from 'express4'
import { Policy } from 'tidegate'
import { rateLimit } from 'tidegate/express'
import { killOneMaster, own, prefix, shared } from './support/servers.mjs'
import { errors, keeper, send, serve, statuses, until } from './support/express.mjs'

setFlagsFromString('--expose-gc')
const collect = runInNewContext('gc')
const PACKAGE = fileURLToPath(new URL('..', import.meta.url))
const redis = await shared('server')
/** What a busy machine may take longer than the deadline. */
const GENEROUS_MS = 5_000

/** A limiter that is closed when the test ends, with time enough for a busy machine. */
function limiter(t, options) {
  const made = rateLimit({ url: redis.url, deadline: '10s', logger: keeper(), ...options })
  t.after(() => made.close())
  return made
}

function application(express, limiter) {
  return express()
    .use(limiter)
    .use((request, response) => response.send('ok'))
    .use(errors)
}

test('two applications on one store admit the limit together', async (t) => {
  const options = { prefix: prefix(), limit: 25, windowMs: '1h', name: 'both' }
  const where = await Promise.all(
    [express4, express5].map((express) => serve(t, application(express, limiter(t, options)))),
  )
  const answers = await Promise.all(Array.from({ length: 100 }, (_, number) => send(where[number % 2])))
  assert.equal(answers.filter(({ status }) => status === 200).length, 25)
  const remaining = answers
    .filter(({ status }) => status === 200)
    .map(({ headers }) => Number(headers['x-ratelimit-remaining']))
  assert.deepEqual(
    remaining.sort((one, other) => one - other),
    Array.from({ length: 25 }, (_, number) => number),
  )
})

test('resetKey and getKey, keys, costs, limits by function, and what is given back', async (t) => {
  const keyed = limiter(t, {
    prefix: prefix(),
    windowMs: '1h',
    keyGenerator: (request) => request.query.key,
    limit: (request) => Number(request.query.limit),
    cost: (request) => Number(request.query.cost ?? 1),
    skipFailedRequests: true,
    requestWasSuccessful: (request) => request.query.failed === undefined,
  })
  const where = await serve(t, application(express5, keyed))
  assert.deepEqual(await statuses(where, 2, { path: '/?key=a&limit=5&cost=3' }), [200, 429])
  assert.deepEqual(await statuses(where, 1, { path: '/?key=a&limit=9&cost=3' }), [200])
  assert.equal((await keyed.getKey('a')).totalHits, 6)
  assert.deepEqual(await statuses(where, 1, { path: '/?key=a&limit=9&failed=1' }), [200])
  await until(async () => (await keyed.getKey('a')).totalHits === 6)
  await keyed.resetKey('a')
  assert.equal(await keyed.getKey('a'), undefined)
  assert.deepEqual(await statuses(where, 1, { path: '/?key=a&limit=3&cost=3' }), [200])
})

test('names that are derived alike are told, and names that were written are not', async (t) => {
  const store = { prefix: prefix(), windowMs: 60_000, limit: 5 }
  const codes = (options) => {
    const logger = keeper()
    const made = limiter(t, { ...store, ...options, logger })
    return [made, logger.codes]
  }
  const [first, none] = codes({})
  assert.deepEqual(none, [])
  assert.deepEqual(codes({})[1], ['ERR_TIDEGATE_SHARED_NAME'])
  assert.deepEqual(codes({ validate: { sharedName: false } })[1], [])
  assert.deepEqual(codes({ limit: 6 })[1], [])
  assert.deepEqual(codes({ name: '5-in-1min' })[1], [])
  assert.deepEqual(codes({ identifier: 'login' })[1], [])
  assert.deepEqual(codes({ prefix: prefix() })[1], [])
  first.close()
  const policy = new Policy({ version: 1, rules: { a: '1/m' }, http: { default: { rules: 'a', key: 'ip' } } })
  const beside = () => {
    const logger = keeper()
    rateLimit({ policy, windowMs: 60_000, limit: 5, logger })
    return logger.codes
  }
  assert.deepEqual([beside(), beside()], [[], ['ERR_TIDEGATE_SHARED_NAME']])
  // In memory each has a bucket of its own.
  const logger = keeper()
  for (let made = 0; made < 2; made++) rateLimit({ windowMs: 60_000, limit: 5, logger })
  assert.deepEqual(logger.codes, [])
})

test('limiters on one store share its connections, which end with the last of them', async (t) => {
  const server = await own(t, 'server')
  const options = { url: server.url, prefix: prefix(), deadline: '10s' }
  const first = await connections(server)
  const made = Array.from({ length: 10 }, (_, number) => rateLimit({ ...options, name: `rule${number}` }))
  for (const limiter of made) {
    const where = await serve(t, application(express5, limiter))
    assert.deepEqual(await statuses(where, 1), [200])
  }
  const more = (await connections(server)) - first
  assert.ok(more >= 1 && more < 10, `${more} connections`)
  // The first one holds them, and may go first.
  made.shift().close()
  const where = await serve(t, application(express5, made[3]))
  assert.deepEqual(await statuses(where, 1), [200])
  made.forEach((limiter) => limiter.close())
  // What the collector has not taken yet may hold them a little longer.
  await until(async () => (collect(), (await connections(server)) === first))
})

test('a rule on the store of a policy', async (t) => {
  const store = { url: redis.url, prefix: prefix(), deadline: '10s' }
  const policy = new Policy({ version: 1, store, rules: { a: '1/m' }, http: { default: { rules: 'a', key: 'ip' } } })
  t.after(() => policy.close())
  const where = await serve(t, application(express5, rateLimit({ ...store, policy, limit: 2, name: 'own' })))
  assert.deepEqual(await statuses(where, 3), [200, 200, 429])
  assert.throws(() => rateLimit({ policy, limit: 2 }), /same \[store\]/)
})

test('while Redis hangs, a request is answered by the deadline, as onError says', async (t) => {
  const server = await own(t, 'server')
  for (const [options, status, figures] of [
    [{}, 200, undefined],
    [{ onError: 'allow' }, 200, undefined],
    [{ passOnStoreError: true }, 200, undefined],
    [{ onError: 'deny' }, 503, undefined],
    [
      { passOnStoreError: false, message: 'too many', handler: (request, response) => response.send('handled') },
      503,
      undefined,
    ],
    [{ onError: 'local' }, 200, '4'],
  ]) {
    const limiter = rateLimit({ url: server.url, prefix: prefix(), deadline: '200ms', ...options })
    t.after(() => limiter.close())
    let info
    const app = express5()
      .use(limiter)
      .use((request, response) => {
        info = request.rateLimit
        response.send('ok')
      })
    const where = await serve(t, app)
    await server.do('pause')
    const start = performance.now()
    const answer = await send(where)
    const took = performance.now() - start
    await server.do('resume')
    assert.deepEqual(
      [answer.status, answer.headers['x-ratelimit-remaining']],
      [status, figures],
      JSON.stringify(options),
    )
    if (status === 200) assert.deepEqual([info.used, info.remaining], figures === undefined ? [0, 5] : [1, 4])
    assert.ok(took < GENEROUS_MS, `${took} ms`)
    if (status === 503) assert.match(answer.body, /temporary-reduced-capacity/)
  }
})

test('a master of a cluster dies: requests are answered by the deadline, and limited again by its replica', async (t) => {
  const server = await own(t, 'cluster', { hurt: true })
  const keyGenerator = (request) => request.get('key')
  const options = { url: server.url, prefix: prefix(), limit: 1, windowMs: '1h', onError: 'deny', keyGenerator }
  const where = await serve(t, application(express5, limiter(t, { ...options, deadline: '200ms' })))
  let round = 0
  /** What one request each of 30 clients gets: of so many, each of the three masters has some. */
  const clients = async () => {
    const start = performance.now()
    const sent = Array.from({ length: 30 }, (_, client) => send(where, { headers: { key: `${round}-${client}` } }))
    const found = new Set((await Promise.all(sent)).map(({ status }) => status))
    const took = performance.now() - start
    assert.ok(took < GENEROUS_MS, `${took} ms`)
    return found
  }
  const allPass = async () => (round++, [...(await clients())].join() === '200')
  await until(allPass)
  await killOneMaster(server.url)
  await until(async () => (round++, [...(await clients())].sort().join() === '200,503'))
  await until(allPass)
  assert.deepEqual([...(await clients())], [429])
})

test('an application starts without Redis, and limits once it is there', async (t) => {
  const server = await own(t, 'server')
  await server.do('kill')
  const options = { url: server.url, prefix: prefix(), deadline: '200ms', limit: 1, windowMs: '1h' }
  const open = rateLimit({ ...options, name: 'open' })
  const closed = rateLimit({ ...options, name: 'closed', onError: 'deny' })
  t.after(() => [open, closed].forEach((limiter) => limiter.close()))
  const [where, behind] = await Promise.all([open, closed].map((limiter) => serve(t, application(express5, limiter))))
  assert.deepEqual(await statuses(where, 3), [200, 200, 200])
  assert.deepEqual(await statuses(behind, 3), [503, 503, 503])
  await server.do('restart')
  await until(async () => (await send(where)).status === 429)
  await until(async () => (await send(behind)).status === 429)
})

const APPLICATION = `
import { once } from 'node:events'
import express from 'express'
import { rateLimit } from 'tidegate/express'
const [url, prefix] = process.argv.slice(1)
const app = express().use(rateLimit({ url, prefix, deadline: '10s', limit: 1 }))
const server = app.listen(0, '127.0.0.1')
await once(server, 'listening')
const ask = async () => (await fetch('http://127.0.0.1:' + server.address().port)).status
console.log(await ask(), await ask())
server.closeAllConnections()
server.close()
`

test('a process whose server is closed ends by itself', async () => {
  const args = ['--input-type=module', '--eval', APPLICATION, redis.url, prefix()]
  const { stdout } = await promisify(execFile)(process.execPath, args, { cwd: PACKAGE, timeout: 60_000 })
  assert.equal(stdout, '404 429\n')
})

/** How many clients a server has, this one's connection among them. */
function connections({ url }) {
  const { hostname, port } = new URL(url)
  return new Promise((resolve, reject) => {
    const socket = net.connect(Number(port), hostname)
    let answer = ''
    socket.setEncoding('utf8').on('error', reject)
    socket.on('data', (text) => (answer += text)).on('end', () => resolve(answer.match(/^id=/gm).length))
    socket.setTimeout(20_000, () => socket.destroy(new Error('no answer')))
    socket.write('CLIENT LIST\r\nQUIT\r\n')
  })
}
