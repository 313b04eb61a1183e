// Fastify over sockets.
import assert from 'node:assert/strict'
import net from 'node:net'
import { test } from 'node:test'
import Fastify from 'fastify'
import rateLimit, { admissionOf } from 'tidegate/fastify'

import { send, sends, statuses, until } from './support/express.mjs'
import { from, login, ROUTES, standing } from './support/frameworks.mjs'
import { own, prefix, shared } from './support/servers.mjs'

const redis = await shared('server')

/** Serves what `build` makes of an application until the test ends; returns where. */
async function serve(t, build, options = {}) {
  const app = Fastify(options)
  t.after(() => app.close())
  await build(app)
  await app.listen({ host: '127.0.0.1', port: 0 })
  return { host: '127.0.0.1', port: app.server.address().port }
}

/** An application with the plugin, all of whose paths answer with how their limit stands. */
function app(t, options, server) {
  return serve(
    t,
    async (app) => {
      await app.register(rateLimit, options)
      app.all('/*', async (request) => request.rateLimitInfo ?? 'hello')
    },
    server,
  )
}

test('a limit of options: figures, fields, a refusal, and the next window', async (t) => {
  const { clock, policy } = standing(t)
  const where = await app(t, { max: 2, timeWindow: '1 minute', policy })
  const [first, second, third] = await sends(where, 3)
  assert.deepEqual([first.status, second.status, third.status], [200, 200, 429])
  assert.equal(first.headers['x-ratelimit-limit'], '2')
  assert.equal(first.headers['x-ratelimit-remaining'], '1')
  assert.equal(first.headers['x-ratelimit-reset'], '60')
  const { limit, used, remaining, key } = JSON.parse(first.body)
  assert.deepEqual({ limit, used, remaining, key }, { limit: 2, used: 1, remaining: 1, key: '127.0.0.1' })
  assert.equal(third.headers['retry-after'], '60')
  assert.equal(third.headers['content-type'], 'application/problem+json')
  assert.equal(JSON.parse(third.body).status, 429)
  const text = await send(where, { headers: { accept: 'text/html' } })
  assert.match(text.body, /^Too many requests\./)
  clock.advance('1m')
  assert.equal((await send(where)).status, 200)
})

test('routes have limits of their own, groups share one, and false has none', async (t) => {
  const { policy } = standing(t)
  const group = { max: 3, timeWindow: 60_000, groupId: 'group' }
  const where = await serve(t, async (app) => {
    await app.register(rateLimit, { max: 2, policy })
    const hello = async () => 'hello'
    app.get('/one', hello)
    app.get('/two', hello)
    const one = { max: 1 }
    app.get('/own/:id', { config: { rateLimit: one } }, hello)
    app.get('/other', { config: { rateLimit: one } }, hello)
    app.get('/group/one', { config: { rateLimit: group } }, hello)
    app.post('/group/two', { config: { rateLimit: { ...group } } }, hello)
    app.get('/free', { config: { rateLimit: false } }, hello)
    app.get('/named', { config: { rateLimit: { max: 1, name: 'mine' } } }, hello)
    await app.register(
      async (inner) => {
        inner.get('/own', { config: { rateLimit: { max: 1 } } }, hello)
      },
      { prefix: '/inner' },
    )
  })
  const of = async (...paths) => {
    const found = []
    for (const path of paths) found.push((await send(where, typeof path === 'string' ? { path } : path)).status)
    return found
  }
  assert.deepEqual(await of('/one', '/two', '/one', '/two'), [200, 200, 429, 429])
  assert.deepEqual(await of('/own/1', '/own/2', '/other', '/inner/own', '/inner/own'), [200, 429, 200, 200, 429])
  const two = { path: '/group/two', method: 'POST' }
  assert.deepEqual(await of('/group/one', two, '/group/one', two, '/group/one'), [200, 200, 200, 429, 429])
  assert.deepEqual(await of('/free', '/free', '/free'), [200, 200, 200])
  assert.deepEqual(await of('/named', '/named'), [200, 429])
  // The HEAD that Fastify adds is no second budget.
  assert.deepEqual(await of({ path: '/own/1', method: 'HEAD' }), [429])
})

test('global: false limits only what says so; the decorator makes hooks, for 404s too', async (t) => {
  const { policy } = standing(t)
  const where = await serve(t, async (app) => {
    await app.register(rateLimit, { global: false, max: 2, timeWindow: 60_000, policy })
    app.get('/free', async () => 'hello')
    app.get('/own', { config: { rateLimit: { max: 1 } } }, async () => 'hello')
    app.get('/hook', { preHandler: app.rateLimit({ max: 1 }) }, async () => 'hello')
    app.setNotFoundHandler({ preHandler: app.rateLimit() }, (request, reply) => reply.code(404).send('nothing'))
  })
  assert.deepEqual(await statuses(where, 3, { path: '/free' }), [200, 200, 200])
  assert.deepEqual(await statuses(where, 2, { path: '/own' }), [200, 429])
  assert.deepEqual(await statuses(where, 2, { path: '/hook' }), [200, 429])
  assert.deepEqual(await statuses(where, 3, { path: '/nowhere' }), [404, 404, 429])
})

test('keyGenerator, allowList, and what functions say', async (t) => {
  const { policy } = standing(t)
  const where = await app(t, {
    keyGenerator: async (request) => request.headers['x-from'],
    allowList: ['friend'],
    max: async (request, key) => (key === 'rich' ? 4 : 2),
    timeWindow: (request, key) => (key === 'slow' ? '1h' : 1_000),
    cost: (request) => Number(request.headers['x-cost'] ?? 1),
    policy,
  })
  assert.deepEqual(await statuses(where, 3, from('poor')), [200, 200, 429])
  assert.deepEqual(await statuses(where, 5, from('rich')), [200, 200, 200, 200, 429])
  assert.deepEqual(await statuses(where, 3, from('friend')), [200, 200, 200])
  const slow = await sends(where, 3, from('slow'))
  assert.equal(slow[2].headers['retry-after'], '3600')
  assert.deepEqual(await statuses(where, 2, from('dear', { 'x-cost': '2' })), [200, 429])
  const never = await app(t, { max: () => 2, cost: 3, policy, name: 'never' })
  assert.deepEqual(await statuses(never, 1), [429])

  const listed = await app(t, { max: 1, name: 'listed', allowList: ['::ffff:127.0.0.1'], policy })
  assert.deepEqual(await statuses(listed, 2), [200, 200])
  const allowList = async (request, key) => key === '127.0.0.1' && request.url === '/free'
  const asked = await app(t, { max: 1, name: 'asked', allowList, policy })
  assert.deepEqual(await statuses(asked, 3, { path: '/free' }), [200, 200, 200])
  assert.deepEqual(await statuses(asked, 2, { path: '/paid' }), [200, 429])
})

test('trustProxy of Fastify decides the address', async (t) => {
  const { policy } = standing(t)
  for (const [trustProxy, expected] of [
    [true, [200, 200, 429]],
    [false, [200, 429, 429]],
  ]) {
    const where = await app(t, { max: 1, name: `proxy-${trustProxy}`, policy }, { trustProxy })
    const by = async (address) => (await send(where, { headers: { 'x-forwarded-for': address } })).status
    const found = [await by('203.0.113.1'), await by('203.0.113.2'), await by('203.0.113.2')]
    assert.deepEqual(found, expected)
  }
})

test('errorResponseBuilder is thrown, and fields may be left out', async (t) => {
  const { policy } = standing(t)
  const told = []
  const where = await app(t, {
    max: 1,
    timeWindow: '2 minutes',
    policy,
    errorResponseBuilder: (request, { statusCode, ban, max, ttl, after }) => {
      return Object.assign(new Error(`${max} per ${ttl}, again in ${after}`), { statusCode, ban })
    },
    addHeaders: { 'x-ratelimit-reset': false },
    addHeadersOnExceeding: { 'x-ratelimit-limit': false },
    onExceeding: (request, key) => told.push(`passes ${key}`),
    onExceeded: (request, key) => told.push(`refused ${key}`),
  })
  const [first, second] = await sends(where, 2)
  assert.equal(first.headers['x-ratelimit-limit'], undefined)
  assert.equal(first.headers['x-ratelimit-reset'], '120')
  const error = JSON.parse(second.body)
  assert.deepEqual([error.statusCode, error.message], [429, '1 per 120000, again in 2 minutes'])
  assert.equal(second.headers['x-ratelimit-limit'], '1')
  assert.equal(second.headers['x-ratelimit-reset'], undefined)
  assert.equal(second.headers['retry-after'], '120')
  assert.match(second.headers['content-type'], /^application\/json/)
  assert.deepEqual(told, ['passes 127.0.0.1', 'refused 127.0.0.1'])
})

test('enableDraftSpec, headers, and a refusal in every hook', async (t) => {
  const { policy } = standing(t)
  const draft = await send(await app(t, { max: 5, policy, name: 'draft', enableDraftSpec: true }))
  assert.equal(draft.headers['ratelimit-limit'], '5')
  assert.equal(draft.headers['x-ratelimit-limit'], undefined)
  const headers = await send(await app(t, { max: 5, policy, name: 'headers', headers: ['draft-10'] }))
  assert.match(headers.headers['ratelimit'], /^"headers";r=4/)
  for (const hook of ['onRequest', 'preParsing', 'preValidation', 'preHandler']) {
    const where = await app(t, { max: 1, policy, name: hook, hook })
    assert.deepEqual(await statuses(where, 2, { method: 'POST' }), [200, 429], hook)
  }
})

test('the routes of a document, by its trusted proxies and the user', async (t) => {
  const { policy } = standing(t, ROUTES)
  const where = await serve(t, async (app) => {
    app.post('/before', { config: { rateLimit: { route: 'login' } } }, async () => 'in')
    await app.register(rateLimit, { policy, user: async (request) => request.headers['x-from'] })
    app.post('/login', async () => 'in')
    app.post('/sign-in', { config: { rateLimit: { route: 'login' } } }, async () => 'in')
    app.get('/api/health', { config: { rateLimit: false } }, async () => 'well')
    app.get('/api/x', async (request) => request.rateLimitInfo)
  })
  assert.deepEqual(await statuses(where, 2, login('203.0.113.1')), [200, 429])
  assert.deepEqual(await statuses(where, 1, login('203.0.113.2')), [200])
  // What Fastify's router takes for /login is limited as /login.
  for (const path of [
    '/login?x=1',
    '/login?x=/',
    '/%6Cogin',
    'http://a.example/login',
    'http://a?b/login',
    '/login#x',
  ]) {
    const raw = await spoken(where, `POST ${path} HTTP/1.1`, 'X-Forwarded-For: 203.0.113.1', 'Content-Length: 0')
    assert.match(raw, /^HTTP\/1.1 429 /, path)
  }
  assert.equal((await send(where, { ...login('203.0.113.2'), path: '/sign-in' })).status, 429)
  assert.equal((await send(where, { ...login('203.0.113.3'), path: '/sign-in' })).status, 200)
  // Routes that were there before the plugin are judged too.
  assert.equal((await send(where, { ...login('203.0.113.3'), path: '/before' })).status, 429)
  const passes = await sends(where, 4, { path: '/api/x', ...from('ada') })
  assert.deepEqual(
    passes.map(({ status }) => status),
    [200, 200, 200, 429],
  )
  assert.equal(JSON.parse(passes[0].body).remaining, 2)
  assert.equal((await send(where, { path: '/api/x' })).status, 403)
  assert.equal((await send(where, { path: '/api/health' })).status, 200)
  // What no route of the application is for is limited too.
  assert.deepEqual(await statuses(where, 4, { path: '/api/nowhere', ...from('bob') }), [404, 404, 404, 429])
})

test('a path is cut where the router cuts it, and rewritten where it rewrites', async (t) => {
  const { policy } = standing(t, ROUTES)
  const server = {
    routerOptions: { useSemicolonDelimiter: true },
    rewriteUrl: ({ url }) => (url === '/alias' ? '/login' : url),
  }
  const where = await app(t, { policy }, server)
  assert.deepEqual(await statuses(where, 1, login('203.0.113.1')), [200])
  assert.deepEqual(await statuses(where, 1, { ...login('203.0.113.1'), path: '/login;x' }), [429])
  assert.deepEqual(await statuses(where, 1, { ...login('203.0.113.1'), path: '/alias' }), [429])
})

test('a policy with global: false judges the routes that name one of its own', async (t) => {
  const { policy } = standing(t, ROUTES)
  const where = await serve(t, async (app) => {
    await app.register(rateLimit, { policy, global: false })
    app.post('/login', async () => 'in')
    app.post('/sign-in', { config: { rateLimit: { route: 'login' } } }, async () => 'in')
  })
  assert.deepEqual(await statuses(where, 3, login('203.0.113.1')), [200, 200, 200])
  assert.deepEqual(await statuses(where, 2, { ...login('203.0.113.1'), path: '/sign-in' }), [200, 429])
})

test('what refund_status says is given back, and errors keep the fields', async (t) => {
  const { policy } = standing(t, ROUTES)
  const where = await serve(t, async (app) => {
    await app.register(rateLimit, { policy, user: () => 'ada' })
    app.get('/api/broken', async () => {
      throw new Error('broken')
    })
  })
  for (let times = 0; times < 5; times++) {
    const answer = await send(where, { path: '/api/broken' })
    assert.deepEqual([answer.status, answer.headers['x-ratelimit-remaining']], [500, '2'])
    // It is given back once the response is there, so a moment later.
    await until(async () => (await policy.limiter.peek('api', ['user', 'ada'])).remaining === 3)
  }
})

test('plugins of two contexts stack, and fields of the application stay', async (t) => {
  const { policy } = standing(t, ROUTES)
  let decisions = 0
  const where = await serve(t, async (app) => {
    app.addHook('onRequest', async (request, reply) => void reply.header('x-ratelimit-reset', 'mine'))
    await app.register(rateLimit, { policy, user: () => 'ada' })
    await app.register(async (inner) => {
      await inner.register(rateLimit, { policy, max: 2, timeWindow: '1m', headers: ['x-ratelimit', 'draft-10'] })
      inner.get('/api/x', async (request) => (decisions = admissionOf(request).decisions.length))
    })
  })
  const answer = await send(where, { path: '/api/x' })
  assert.equal(answer.headers['x-ratelimit-reset'], 'mine')
  assert.equal(answer.headers['x-ratelimit-limit'], '2')
  assert.match(answer.headers['ratelimit'], /"api";r=2.*"fastify";r=1/)
  assert.equal(decisions, 2)
})

test("what functions throw goes to Fastify's error handler, and inject works", async (t) => {
  const { policy } = standing(t)
  const broken = () => {
    throw Object.assign(new Error('no key'), { statusCode: 418 })
  }
  const answer = await send(await app(t, { max: 5, policy, keyGenerator: broken }))
  assert.deepEqual([answer.status, JSON.parse(answer.body).message], [418, 'no key'])
  const cost = await send(await app(t, { max: 5, policy, name: 'cost', cost: () => -1 }))
  assert.equal(cost.status, 500)
  const fastify = Fastify()
  t.after(() => fastify.close())
  await fastify.register(rateLimit, { max: 1, name: 'inject', policy })
  fastify.get('/', async () => 'hello')
  assert.deepEqual([(await fastify.inject('/')).statusCode, (await fastify.inject('/')).statusCode], [200, 429])
})

test('two applications on one Redis share buckets by the names of rules', async (t) => {
  const shared = { max: 3, timeWindow: '1h', url: redis.url, nameSpace: prefix(), deadline: '10s', name: 'all' }
  const both = [await app(t, shared), await app(t, shared)]
  assert.deepEqual(await statuses(both[0], 2), [200, 200])
  assert.deepEqual(await statuses(both[1], 2), [200, 429])
  assert.deepEqual(await statuses(both[0], 1), [429])
  // At once, as well.
  const many = { ...shared, max: 10, name: 'many' }
  const apps = [await app(t, many), await app(t, many)]
  const answers = await Promise.all(Array.from({ length: 40 }, (_, at) => send(apps[at % 2])))
  assert.equal(answers.filter(({ status }) => status === 200).length, 10)
  assert.equal(answers.filter(({ status }) => status === 429).length, 30)
})

test('a store that hangs: the deadline is kept, and onError decides', async (t) => {
  const hurt = await own(t, 'server')
  const options = { url: hurt.url, prefix: prefix(), deadline: '300ms', max: 100, onError: 'deny' }
  const where = await app(t, options)
  await until(async () => (await send(where)).status === 200)
  await hurt.do('pause')
  const begun = Date.now()
  assert.equal((await send(where)).status, 503)
  // Generous, for a busy machine.
  assert.ok(Date.now() - begun < 10_000)
  await hurt.do('resume')
  await until(async () => (await send(where)).status === 200)
})

test('a store that is down: skipOnError and onError decide', async (t) => {
  const down = { url: 'redis://127.0.0.1:1', prefix: prefix(), deadline: '200ms', max: 1 }
  const open = await app(t, { ...down, name: 'open', skipOnError: true })
  const closed = await app(t, { ...down, name: 'closed', skipOnError: false })
  const local = await app(t, { ...down, name: 'local', onError: 'local' })
  assert.deepEqual(await statuses(open, 2), [200, 200])
  assert.deepEqual(await statuses(closed, 2), [503, 503])
  assert.deepEqual(await statuses(local, 2), [200, 429])
})

test('options that cannot work say what to write', async () => {
  const registered = async (options, ...routes) => {
    const app = Fastify()
    try {
      await app.register(rateLimit, options)
      for (const [at, config] of routes.entries()) {
        app.get(`/${at}`, { config: { rateLimit: config } }, async () => 'hello')
      }
      await app.ready()
    } finally {
      await app.close()
    }
  }
  await registered({ ban: -1, continueExceeding: false, exponentialBackoff: false })
  for (const [given, code, hint] of [
    [[{ ban: 2 }], 'ERR_TIDEGATE_UNKNOWN_OPTION', /second rule/],
    [[{ continueExceeding: true }], 'ERR_TIDEGATE_UNKNOWN_OPTION', /not counted/],
    [[{ redis: {} }], 'ERR_TIDEGATE_UNKNOWN_OPTION', /write url/],
    [[{ store: class {} }], 'ERR_TIDEGATE_UNKNOWN_OPTION', /tidegate\/stores/],
    [[{ maxx: 2 }], 'ERR_TIDEGATE_UNKNOWN_OPTION', /write max/],
    [[{ max: 2.5 }], 'ERR_TIDEGATE_LIMIT', /whole number/],
    [[{ timeWindow: 0 }], 'ERR_TIDEGATE_WINDOW', /whole milliseconds/],
    [[{ hook: 'onSend' }], 'ERR_TIDEGATE_HOOK', /preHandler/],
    [[{ groupId: 5 }], 'ERR_TIDEGATE_TYPE', /groupId: 'x'/],
    [[{ skipOnError: true, onError: 'deny' }], 'ERR_TIDEGATE_CONFLICTING_OPTIONS', /onError alone/],
    [[{}, true], 'ERR_TIDEGATE_ROUTE_CONFIG', /false for no limit/],
    [[{}, { url: 'redis://127.0.0.1' }], 'ERR_TIDEGATE_UNKNOWN_OPTION', /where the plugin is registered/],
    [[{}, { route: 'login' }], 'ERR_TIDEGATE_ROUTE_CONFIG', /policy: 'limits.toml'/],
    [[{}, { max: 2, groupId: 'g' }, { max: 3, groupId: 'g' }], 'ERR_TIDEGATE_GROUP', /one groupId/],
    [[{ policy: ROUTES }, { max: 2 }], 'ERR_TIDEGATE_ROUTE_CONFIG', /into the document/],
    [[{ policy: ROUTES }, { route: 'nowhere' }], 'invalid_request', /nowhere/],
    [[{ policy: ROUTES, keyGenerator: () => 1 }], 'ERR_TIDEGATE_UNKNOWN_OPTION', /into the document/],
  ]) {
    await assert.rejects(
      () => registered(...given),
      (error) => error.code === code && hint.test(error.message),
      JSON.stringify(given),
    )
  }
})

/** One request as it is written here, which a client would not send: the answer's text. */
function spoken({ host, port }, line, ...headers) {
  return new Promise((resolve, reject) => {
    const socket = net.connect(port, host)
    let answer = ''
    socket.setTimeout(20_000, () => socket.destroy(new Error('no answer')))
    socket.on('data', (chunk) => (answer += chunk))
    socket.on('error', reject)
    socket.on('close', () => resolve(answer))
    socket.end([line, 'Host: a.example', 'Connection: close', ...headers, '', ''].join('\r\n'))
  })
}
