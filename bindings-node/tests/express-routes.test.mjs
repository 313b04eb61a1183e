// Limiters by the routes of a document: real applications of both versions of Express, over sockets.
import assert from 'node:assert/strict'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { createRequire } from 'node:module'
import net from 'node:net'
import os from 'node:os'
import path from 'node:path'
import { describe, test } from 'node:test'
import { Policy } from 'tidegate'
import { admissionOf, rateLimit } from 'tidegate/express'
import { pathOf } from '../dist/express/path.js'
import './support/servers.mjs'
import { errors, keeper, send, sends, serve, statuses, until, VERSIONS } from './support/express.mjs'

/** The one that Express has. */
const parseurl = createRequire(createRequire(import.meta.url).resolve('express'))('parseurl')
const LOGIN = { name: 'login', path: '/login', rules: 'login', key: 'ip' }

function document(routes = [LOGIN], more = {}) {
  return { version: 1, rules: { login: '2/m', wide: '9/m' }, routes, ...more }
}

for (const [version, express] of Object.entries(VERSIONS)) {
  describe(version, () => {
    function application(options, answer = (request, response) => response.send('ok')) {
      const app = express()
      app.use(rateLimit({ logger: keeper(), ...options }))
      return app.use(answer).use(errors)
    }

    test('the path chooses the rules, and a refusal is the core’s', async (t) => {
      const where = await serve(t, application({ policy: document() }))
      const [first, , refused] = await sends(where, 3, { method: 'POST', path: '/login?next=/' })
      assert.deepEqual([first.status, first.headers['ratelimit']], [200, '"login";r=1;t=60'])
      assert.deepEqual([refused.status, refused.headers['content-type']], [429, 'application/problem+json'])
      assert.deepEqual(JSON.parse(refused.body)['violated-policies'], ['login'])
      const other = await send(where, { path: '/other' })
      assert.deepEqual([other.status, other.headers['ratelimit']], [200, undefined])
    })

    test('a document, a path of one, and a policy', async (t) => {
      const folder = await mkdtemp(path.join(os.tmpdir(), 'tidegate-'))
      t.after(() => rm(folder, { recursive: true }))
      const file = path.join(folder, 'limits.json')
      await writeFile(file, JSON.stringify(document()))
      const policy = new Policy(document())
      for (const given of [document(), file, policy]) {
        const limiter = rateLimit({ policy: given })
        const where = await serve(t, express().use(limiter))
        assert.deepEqual(await statuses(where, 3, { path: '/login' }), [404, 404, 429])
        limiter.close()
        limiter.close()
      }
      // A policy that was given is its owner's: it is open still.
      assert.equal(policy.request('GET', '/login').route, 'login')
    })

    test('every spelling of a path that the application takes is limited', async (t) => {
      const app = application({ policy: document() })
      const where = await serve(t, app)
      await statuses(where, 2, { path: '/login' })
      const spellings = [
        '/LOGIN',
        '/login/',
        '/%6Cogin',
        '/login?x=1',
        '/login#x',
        '/login?x#y',
        'http://any/login',
        'http://any:1/login?x',
        '//any@host/login#',
        '//any@host/login?x#',
        'http://any@host/login',
      ]
      for (const spelling of spellings) {
        assert.equal(await raw(where, spelling), 429, JSON.stringify(spelling))
      }
      // The router trims it; Node from 20 on does not let it in.
      for (const trimmed of ['/login\u00a0', '/login\u00a0\u00a0', '/login\t']) {
        assert.ok([400, 429].includes(await raw(where, trimmed)), JSON.stringify(trimmed))
      }
      assert.equal(await raw(where, 'http://any'), 200)
      assert.equal(await raw(where, '/loginx'), 200)
    })

    test('the path is that of the wire, whatever the limiter is mounted under', async (t) => {
      const limiter = rateLimit({ policy: document([{ ...LOGIN, path: '/api/login' }]) })
      const app = express()
      const router = express.Router()
      router.use(limiter)
      router.get('/login', (request, response) => response.send(request.url))
      app.use('/api', router)
      const sub = express()
      sub.use(limiter)
      app.use('/v2', (request, response, next) => ((request.url = '/login'), next()), sub)
      const where = await serve(t, app)
      assert.deepEqual(await statuses(where, 3, { path: '/api/login' }), [200, 200, 429])
      assert.deepEqual(await statuses(where, 3, { path: '/v2/any' }), [404, 404, 404])
    })

    test('the document says whose word on addresses is believed, and Express does not', async (t) => {
      const trusting = document([LOGIN], { http: { trusted_proxies: ['127.0.0.1'] } })
      const app = express().use(rateLimit({ policy: trusting }))
      const where = await serve(t, app)
      const ask = (...lines) => raw(where, '/login', lines.map((line) => `X-Forwarded-For: ${line}\r\n`).join(''))
      assert.deepEqual(
        [await ask('9.9.9.1, 192.0.2.1'), await ask('9.9.9.2, 192.0.2.1'), await ask('9.9.9.3, 192.0.2.1')],
        [404, 404, 429],
      )
      // Several lines stay several, and the last one is the nearest proxy's.
      assert.deepEqual([await ask('9.9.9.4', '192.0.2.1'), await ask('192.0.2.1', '192.0.2.2')], [429, 404])
      const logger = keeper()
      const forged = express()
        .set('trust proxy', true)
        .use(rateLimit({ policy: document(), logger }))
      const there = await serve(t, forged)
      const headers = (address) => ({ path: '/login', headers: { 'X-Forwarded-For': address } })
      const answers = [
        await send(there, headers('1.1.1.1')),
        await send(there, headers('2.2.2.2')),
        await send(there, headers('3.3.3.3')),
      ]
      assert.deepEqual(
        answers.map(({ status }) => status),
        [404, 404, 429],
      )
      assert.deepEqual(logger.codes, ['ERR_TIDEGATE_UNEXPECTED_X_FORWARDED_FOR'])
    })

    test('requests that are made without raw headers are read by their headers', async (t) => {
      const route = { ...LOGIN, key: ['ip', 'header:x-api-key'], without_identity: 'refuse' }
      const limiter = rateLimit({ policy: document([route], { http: { trusted_proxies: ['127.0.0.1'] } }) })
      const app = express()
      app.use((request, response, next) => {
        const { headers } = request
        Object.defineProperty(request, 'headers', { value: headers })
        request.rawHeaders = []
        next()
      })
      const where = await serve(t, app.use(limiter))
      const ask = (key, address) => ({ path: '/login', headers: { 'X-Api-Key': key, 'X-Forwarded-For': address } })
      assert.deepEqual(await statuses(where, 3, ask('a', '192.0.2.1')), [404, 404, 429])
      assert.deepEqual(await statuses(where, 1, ask('b', '192.0.2.1')), [404])
      assert.deepEqual(await statuses(where, 1, ask('a', '192.0.2.2')), [404])
    })

    test('a proxy on a Unix socket', async (t) => {
      const folder = await mkdtemp(path.join(os.tmpdir(), 'tidegate-'))
      t.after(() => rm(folder, { recursive: true }))
      const app = express().use(rateLimit({ policy: document([LOGIN], { http: { trusted_proxies: ['unix'] } }) }))
      const where = await serve(t, app, path.join(folder, 'socket'))
      const ask = (address) => ({ path: '/login', headers: { 'X-Forwarded-For': address } })
      assert.deepEqual(await statuses(where, 3, ask('192.0.2.1')), [404, 404, 429])
      assert.deepEqual(await statuses(where, 1, ask('192.0.2.2')), [404])
    })

    test('the application is asked only what a route needs', async (t) => {
      const asked = []
      const ask = (name, answer) => async (request) => {
        asked.push(name)
        return answer(request)
      }
      const upload = {
        path: '/upload',
        rules: 'upload',
        key: ['user', 'app:tenant'],
        cost: 'app:units',
        without_identity: 'refuse',
        exempt: { app: ['is_staff', 'is_root'] },
      }
      const policy = document([LOGIN, upload], { rules: { login: '2/m', upload: '5/m' } })
      const logger = keeper()
      const app = express()
      app.use(
        rateLimit({
          policy,
          logger,
          user: ask('user', (request) => request.get('user')),
          values: { tenant: ask('tenant', () => 7n), units: () => 2 },
          answers: { is_staff: ask('is_staff', (request) => request.query.staff === '1') },
        }),
      )
      const where = await serve(t, app)
      assert.deepEqual(await statuses(where, 1, { path: '/login' }), [404])
      assert.deepEqual(asked, [])
      const alice = { path: '/upload', headers: { user: 'alice' } }
      assert.deepEqual(await statuses(where, 3, alice), [404, 404, 429])
      assert.deepEqual([...new Set(asked)].sort(), ['is_staff', 'tenant', 'user'])
      assert.deepEqual(await statuses(where, 1, { path: '/upload', headers: { user: 'bob' } }), [404])
      assert.deepEqual(await statuses(where, 1, { path: '/upload' }), [403])
      assert.deepEqual(await statuses(where, 1, { ...alice, path: '/upload?staff=1' }), [404])
      assert.deepEqual(logger.codes, [])
    })

    test('what is missing is told at the start, and a cost that is missing is an error', async (t) => {
      const route = { ...LOGIN, key: 'user', cost: 'app:units', without_identity: 'skip' }
      const logger = keeper()
      const where = await serve(t, application({ policy: document([route]), logger }))
      assert.deepEqual(logger.codes, ['ERR_TIDEGATE_UNASKED'])
      const alone = keeper()
      rateLimit({
        policy: document([route, { ...LOGIN, name: 'other', path: '/other' }]),
        route: 'other',
        logger: alone,
      })
      assert.deepEqual(alone.codes, [], 'another route is nothing to this limiter')
      const answer = await send(where, { path: '/login' })
      assert.deepEqual([answer.status, answer.body.startsWith('invalid_request')], [500, true])
    })

    test('whoever is asked and throws is the application’s error', async (t) => {
      const route = { ...LOGIN, key: ['user', 'app:a'], without_identity: 'skip', exempt: { app: ['b'] } }
      for (const thrown of [new Error('boom'), undefined, 'route']) {
        const rejects = () => Promise.reject(thrown)
        const throws = () => {
          throw thrown
        }
        for (const fails of [rejects, throws]) {
          for (const asks of [{ user: fails }, { values: { a: fails } }, { answers: { b: fails } }]) {
            const where = await serve(t, application({ policy: document([route]), ...asks }))
            assert.equal((await send(where, { path: '/login' })).status, 500)
          }
        }
      }
      const later = () => new Promise((resolve, reject) => setTimeout(reject, 20, new Error('later')))
      const atOnce = () => {
        throw new Error('at once')
      }
      for (const asks of [
        { user: later, values: { a: atOnce } },
        { user: atOnce, values: { a: later }, answers: { b: later } },
      ]) {
        const where = await serve(t, application({ policy: document([route]), ...asks }))
        assert.match((await send(where, { path: '/login' })).body, /at once/)
        await new Promise((resolve) => setTimeout(resolve, 60))
      }
      for (const value of [{}, [{}], true, Symbol('a')]) {
        const where = await serve(t, application({ policy: document([route]), user: () => value }))
        assert.match((await send(where, { path: '/login' })).body, /^TypeError/, String(value))
      }
      // Nothing but true is a yes, and what objects have by birth is no answer.
      for (const asks of [{ answers: { b: () => 'no' } }, { answers: { b: () => ({}) } }, {}]) {
        const where = await serve(
          t,
          application({ policy: document([{ ...LOGIN, exempt: { app: ['b', 'toString'] } }]), ...asks }),
        )
        assert.deepEqual(await statuses(where, 3, { path: '/login' }), [200, 200, 429])
      }
    })

    test('figures on the request', async (t) => {
      const both = { ...LOGIN, rules: ['wide', { rule: 'login', key: 'constant:all' }] }
      const show = (request, response) => {
        const { limit, used, remaining, resetTime, key } = request.rateLimit
        const { route, outcome, decisions } = admissionOf(request)
        response.json([
          limit,
          used,
          remaining,
          Date.parse(resetTime) > Date.now(),
          key,
          route,
          outcome,
          decisions.length,
        ])
      }
      const where = await serve(t, application({ policy: document([both]) }, show))
      assert.deepEqual(JSON.parse((await send(where, { path: '/login' })).body), [
        2,
        1,
        1,
        true,
        null,
        'login',
        'allowed',
        2,
      ])
    })

    test('a response gives back by its status, once it is there', async (t) => {
      const route = { ...LOGIN, refund_status: ['5xx', 404] }
      const answer = (request, response, next) => {
        if (request.query.status === 'throw') return next(new Error('boom'))
        response.status(Number(request.query.status)).send('done')
      }
      const policy = new Policy(document([route]))
      const where = await serve(t, application({ policy }, answer))
      for (const status of [404, 503, 'throw', 404]) {
        await send(where, { path: `/login?status=${status}` })
        await until(async () => (await policy.limiter.peek('login', ['ip', '127.0.0.1'])).remaining === 2)
      }
      assert.deepEqual(await statuses(where, 3, { path: '/login?status=200' }), [200, 200, 429])
    })

    test('stacked limiters charge a rule once, and their fields tell of all', async (t) => {
      const policy = new Policy(document([LOGIN, { name: 'all', prefix: '/', rules: ['wide', 'login'], key: 'ip' }]))
      const app = express()
      app.use(rateLimit({ policy }))
      const inner = rateLimit({ policy, route: 'all' })
      app.use('/login', inner, inner, (request, response) => response.send('in'))
      const where = await serve(t, app)
      const [first, , refused] = await sends(where, 3, { path: '/login' })
      assert.deepEqual([first.status, first.headers['ratelimit']], [200, '"login";r=1;t=60, "wide";r=8;t=60'])
      assert.equal(refused.status, 429)
      // A rule of a limiter's own beside it.
      const own = rateLimit({ limit: 1, name: 'own', standardHeaders: 'draft-8' })
      const both = await serve(t, express().use(rateLimit({ policy: document() }), own))
      const answer = await send(both, { path: '/login' })
      assert.equal(answer.headers['ratelimit'], '"login";r=1;t=60, "own";r=0;t=60')
    })

    test('a document that is taken anew holds from the next request on', async (t) => {
      const policy = new Policy(document())
      const where = await serve(t, application({ policy }))
      assert.deepEqual(await statuses(where, 3, { path: '/login' }), [200, 200, 429])
      policy.reload(document([LOGIN], { rules: { login: '3/m' } }))
      assert.deepEqual(await statuses(where, 2, { path: '/login' }), [200, 429])
    })

    test('a route that is not there is told when the limiter is made', () => {
      assert.throws(() => rateLimit({ policy: document(), route: 'nope' }), { code: 'invalid_request' })
      assert.throws(() => rateLimit({ policy: { version: 1, rules: { a: 'often' }, routes: [] } }), {
        name: 'TidegateError',
      })
    })

    test('HEAD counts as GET, and a shadow lets pass without a word', async (t) => {
      const where = await serve(t, application({ policy: document([{ ...LOGIN, methods: ['GET'] }]) }))
      assert.deepEqual(await statuses(where, 2, { method: 'HEAD', path: '/login' }), [200, 200])
      assert.deepEqual(await statuses(where, 1, { method: 'POST', path: '/login' }), [200])
      const [head] = await sends(where, 1, { method: 'HEAD', path: '/login' })
      assert.deepEqual([head.status, head.body], [429, ''])
      const shadow = await serve(t, application({ policy: document([{ ...LOGIN, mode: 'shadow' }]) }))
      const answers = await sends(shadow, 3, { path: '/login' })
      assert.deepEqual(
        answers.map(({ status, headers }) => [status, headers['ratelimit']]),
        Array(3).fill([200, undefined]),
      )
    })
  })
}

/** The status of a request whose target and further lines go out as they are. */
function raw({ host, port }, target, lines = '') {
  return new Promise((resolve, reject) => {
    const socket = net.connect(port, host)
    let answer = ''
    socket.setEncoding('latin1').on('data', (text) => (answer += text))
    socket.on('end', () => resolve(Number(answer.split(' ')[1]))).on('error', reject)
    socket.setTimeout(20_000, () => socket.destroy(new Error('no answer')))
    socket.write(`GET ${target} HTTP/1.1\r\nHost: any\r\n${lines}Connection: close\r\n\r\n`, 'latin1')
  })
}

test('paths are those of the parser that Express asks', () => {
  const parts = [
    '/',
    '//',
    '/login',
    'login',
    'http://',
    'a',
    '@',
    ':',
    '?',
    '#',
    ';',
    '\\',
    '\t',
    '\n',
    ' ',
    '\u00a0',
    '\ufeff',
  ]
  parts.push('%6C', "'", '{', '[', '..', '*', 'x:', '"', '<', '^', '|', '`', '\u00c2', '80')
  let random = 1
  const below = (end) => (random = (random * 48_271) % 2_147_483_647) % end
  for (let number = 0; number < 50_000; number += 1) {
    const target = Array.from({ length: 1 + below(7) }, () => parts[below(parts.length)]).join('')
    let expected = '/'
    try {
      expected = parseurl({ url: target }).pathname || '/'
    } catch {
      // The router finds nothing for it.
    }
    assert.equal(pathOf(target), expected, JSON.stringify(target))
  }
})
