// Limiters with a rule of their own: real applications of both versions of Express, over sockets.
import assert from 'node:assert/strict'
import { IncomingMessage } from 'node:http'
import { describe, test } from 'node:test'
import { admissionOf, ipKeyGenerator, rateLimit } from 'tidegate/express'
import { FakeClock } from 'tidegate/testing'
import './support/servers.mjs'
import { keeper, send, sends, serve, statuses, trusting, until, VERSIONS } from './support/express.mjs'

for (const [version, express] of Object.entries(VERSIONS)) {
  describe(version, () => {
    const application = (limiter, answer) => trusting(express, limiter, answer)
    const from = (address, more = {}) => ({ ...more, headers: { 'X-Forwarded-For': address, ...more.headers } })

    test('a refusal is the core’s, and addresses have a bucket each', async (t) => {
      const where = await serve(t, application(rateLimit({ windowMs: 60_000, limit: 2, standardHeaders: 'draft-8' })))
      const [first, second, refused] = await sends(where, 3, from('192.0.2.1'))
      assert.deepEqual([first.status, second.status, refused.status], [200, 200, 429])
      assert.equal(first.headers['ratelimit'], '"2-in-1min";r=1;t=60')
      assert.equal(first.headers['ratelimit-policy'], '"2-in-1min";q=2;w=60')
      assert.deepEqual([first.headers['x-ratelimit-limit'], first.headers['x-ratelimit-remaining']], ['2', '1'])
      assert.match(refused.headers['retry-after'], /^(60|59)$/)
      assert.equal(refused.headers['content-type'], 'application/problem+json')
      assert.equal(JSON.parse(refused.body).status, 429)
      const json = await send(where, from('192.0.2.1', { headers: { Accept: 'application/json' } }))
      assert.equal(json.headers['content-type'], 'application/json')
      assert.equal(JSON.parse(json.body).error, 'Too Many Requests')
      assert.deepEqual(await statuses(where, 1, from('192.0.2.2')), [200])
    })

    test('without options 5 a minute pass', async (t) => {
      const where = await serve(t, application(rateLimit()))
      assert.deepEqual(await statuses(where, 6), [200, 200, 200, 200, 200, 429])
    })

    test('clients of one IPv6 network are one, and mapped addresses are IPv4', async (t) => {
      const where = await serve(t, application(rateLimit({ limit: 1 })))
      assert.deepEqual(await statuses(where, 1, from('2001:db8:0:1::1')), [200])
      assert.deepEqual(await statuses(where, 1, from('2001:db8:0:fe:1::2')), [429])
      assert.deepEqual(await statuses(where, 1, from('2001:db8:0:100::1')), [200])
      assert.deepEqual(await statuses(where, 1, from('::ffff:192.0.2.1')), [200])
      assert.deepEqual(await statuses(where, 1, from('192.0.2.1')), [429])
      for (const [ipv6Subnet, expected] of [
        [false, [200, 200]],
        [64, [429, 200]],
        [() => 48, [429, 429]],
        [async () => false, [200, 200]],
      ]) {
        const where = await serve(t, application(rateLimit({ limit: 1, ipv6Subnet })))
        await send(where, from('2001:db8:0:1::1'))
        const found = [from('2001:db8:0:1::2'), from('2001:db8:0:2::1')].map((options) => send(where, options))
        assert.deepEqual(
          (await Promise.all(found)).map(({ status }) => status),
          expected,
          String(ipv6Subnet),
        )
      }
    })

    test('what the application has set stays, and a refusal describes its own body', async (t) => {
      const app = express()
      app.use((request, response, next) => {
        response.set({ 'X-RateLimit-Limit': 'mine', Vary: 'Origin', 'Cache-Control': 'public', ETag: '"a"' })
        response.type('html')
        next()
      })
      app.use(rateLimit({ limit: 1 }))
      app.use((request, response) => response.send('<p>ok'))
      const [passed, refused] = await sends(await serve(t, app), 2)
      assert.deepEqual([passed.headers['x-ratelimit-limit'], refused.headers['x-ratelimit-limit']], ['mine', 'mine'])
      assert.deepEqual([passed.headers['cache-control'], refused.headers['cache-control']], ['public', 'no-store'])
      assert.match(passed.headers['content-type'], /html/)
      assert.deepEqual(
        [refused.headers['content-type'], refused.headers['etag']],
        ['application/problem+json', undefined],
      )
      assert.equal(refused.headers['vary'], 'Origin, Accept')
    })

    test('skip lets pass without counting', async (t) => {
      for (const skip of [(request) => request.path === '/free', async (request) => request.path === '/free']) {
        const where = await serve(t, application(rateLimit({ limit: 1, skip })))
        const free = await sends(where, 3, { path: '/free' })
        assert.deepEqual(
          [free.map(({ status }) => status), free[0].headers['x-ratelimit-limit']],
          [[200, 200, 200], undefined],
        )
        assert.deepEqual(await statuses(where, 2), [200, 429])
      }
    })

    test('a key by function, of text, numbers or bytes', async (t) => {
      for (const of of [
        (key) => key,
        async (key) => key,
        (key) => Number(key),
        (key) => Buffer.from(key),
        (key) => BigInt(key),
      ]) {
        const limiter = rateLimit({ limit: 1, keyGenerator: (request) => of(request.get('key')) })
        const where = await serve(
          t,
          application(limiter, (request, response) => response.send(request.rateLimit.key)),
        )
        const answers = [
          await send(where, { headers: { key: '1' } }),
          await send(where, { headers: { key: '2' } }),
          await send(where, { headers: { key: '1' } }),
        ]
        assert.deepEqual(
          answers.map(({ status }) => status),
          [200, 200, 429],
          String(of),
        )
        assert.deepEqual(answers.map(({ body }) => body).slice(0, 2), ['1', '2'])
      }
    })

    test('requests without a key share one limit, and that is told', async (t) => {
      for (const nobody of [undefined, null, '', false]) {
        const logger = keeper()
        const where = await serve(t, application(rateLimit({ limit: 1, keyGenerator: () => nobody, logger })))
        assert.deepEqual(await statuses(where, 2), [200, 429])
        assert.deepEqual(logger.codes, ['ERR_TIDEGATE_UNDEFINED_KEY'])
      }
    })

    test('whatever a function throws is the application’s error, and lets nobody pass', async (t) => {
      const throws = [new Error('boom'), undefined, 'route', 'router', null].flatMap((thrown) => [
        () => {
          throw thrown
        },
        async () => {
          throw thrown
        },
      ])
      for (const name of ['skip', 'keyGenerator', 'limit', 'cost']) {
        for (const failing of throws) {
          const where = await serve(t, application(rateLimit({ [name]: failing })))
          const answer = await send(where)
          assert.equal(answer.status, 500, `${name}: ${failing}`)
          assert.match(answer.body, /^Error: /)
        }
      }
      for (const name of ['handler', 'message', 'retryAfter']) {
        for (const failing of throws) {
          const where = await serve(t, application(rateLimit({ limit: 0, [name]: failing })))
          assert.equal((await send(where)).status, 500, `${name}: ${failing}`)
        }
      }
    })

    test('of two functions that fail, the second is no end of the process', async (t) => {
      const later = async () => {
        await new Promise((resolve) => setTimeout(resolve, 20))
        throw new Error('later')
      }
      const atOnce = () => {
        throw new Error('at once')
      }
      for (const options of [
        { keyGenerator: later, limit: atOnce },
        { keyGenerator: atOnce, limit: later, cost: later },
        { keyGenerator: later, limit: () => NaN },
      ]) {
        const where = await serve(t, application(rateLimit(options)))
        assert.equal((await send(where)).status, 500)
        await new Promise((resolve) => setTimeout(resolve, 60))
      }
    })

    test('an error that is an object stays what it is', async (t) => {
      const thrown = { status: 418, message: 'mine' }
      const app = express().use(rateLimit({ keyGenerator: () => Promise.reject(thrown) }))
      app.use((error, request, response, next) => (error === thrown ? response.status(418).end() : next(error)))
      assert.deepEqual(await statuses(await serve(t, app), 1), [418])
    })

    test('what cannot be a key, a limit or a cost is the application’s error', async (t) => {
      for (const [options, message] of [
        [{ keyGenerator: () => ({}) }, /an object tells nobody from others/],
        [{ keyGenerator: () => [1, {}] }, /a list tells nobody from others/],
        [{ keyGenerator: () => true }, /a boolean tells nobody from others/],
        [{ limit: () => NaN }, /ERR_TIDEGATE_LIMIT/],
        [{ limit: () => Infinity }, /skip for requests without a limit/],
        [{ limit: () => undefined }, /ERR_TIDEGATE_LIMIT/],
        [{ limit: () => 2.5 }, /ERR_TIDEGATE_LIMIT/],
        [{ cost: () => 0 }, /^invalid_request: cost has given 0 for a request; return a whole number from 1 /],
        [{ cost: () => 1.5 }, /invalid_request/],
        [{ cost: () => undefined }, /^invalid_request: cost has given undefined /],
        [{ cost: () => '2' }, /^invalid_request: cost has given 2 /],
      ]) {
        const answer = await send(await serve(t, application(rateLimit(options))))
        assert.equal(answer.status, 500, String(message))
        assert.match(answer.body, message)
      }
    })

    test('costs, as a number and by a function', async (t) => {
      const three = await serve(t, application(rateLimit({ limit: 7, cost: 3 })))
      assert.deepEqual(await statuses(three, 3), [200, 200, 429])
      const cost = async (request) => Number(request.query.units)
      const limiter = rateLimit({
        limit: 7,
        cost,
        handler: (request, response) => response.status(429).json(request.rateLimit),
      })
      const where = await serve(t, application(limiter))
      assert.deepEqual(await statuses(where, 1, { path: '/?units=5' }), [200])
      const refused = await send(where, { path: '/?units=3' })
      const { used, remaining, limit } = JSON.parse(refused.body)
      assert.deepEqual([refused.status, used, remaining, limit], [429, 8, 2, 7])
      assert.deepEqual(await statuses(where, 1, { path: '/?units=2' }), [200])
    })

    test('a cost that a request’s own limit never admits is refused', async (t) => {
      const where = await serve(t, application(rateLimit({ cost: 3, limit: (request) => Number(request.query.limit) })))
      assert.deepEqual(await statuses(where, 1, { path: '/?limit=2' }), [429])
      assert.deepEqual(await statuses(where, 2, { path: '/?limit=5' }), [200, 429])
    })

    test('a limit by function is another limit on the same count', async (t) => {
      const limit = async (request) => Number(request.query.limit)
      const where = await serve(t, application(rateLimit({ limit })))
      assert.deepEqual(await statuses(where, 3, { path: '/?limit=2' }), [200, 200, 429])
      const more = await sends(where, 3, { path: '/?limit=4' })
      assert.deepEqual(
        more.map(({ status }) => status),
        [200, 200, 429],
      )
      assert.deepEqual(
        more.map(({ headers }) => headers['x-ratelimit-limit']),
        ['4', '4', '4'],
      )
      assert.deepEqual(await statuses(where, 1, { path: '/?limit=0' }), [429])
      // More limits than are kept: the count stays.
      for (let limit = 100; limit < 1_110; limit++)
        assert.equal((await send(where, { path: `/?limit=${limit}000` })).status, 200)
      assert.deepEqual(await statuses(where, 1, { path: '/?limit=4' }), [429])
    })

    test('limit 0 refuses all, and tells no time to come back', async (t) => {
      const where = await serve(t, application(rateLimit({ limit: 0 })))
      const [refused] = await sends(where, 1)
      assert.deepEqual([refused.status, refused.headers['retry-after']], [429, undefined])
    })

    test('refusals as the application words them', async (t) => {
      for (const [options, status, body] of [
        [{ message: 'wait' }, 429, 'wait'],
        [{ message: { error: 'wait' } }, 429, '{"error":"wait"}'],
        [{ message: () => 'wait' }, 429, 'wait'],
        [{ message: async (request, response) => response.status(420) && { path: request.path } }, 420, '{"path":"/"}'],
        [{ statusCode: 503 }, 503, 'Too many requests, please try again later.'],
        [{ message: 'wait', statusCode: 403 }, 403, 'wait'],
        [
          { handler: (request, response, next, options) => response.status(options.statusCode).send(options.name) },
          429,
          '0-in-1min',
        ],
        [{ handler: async (request, response) => response.status(400).send('no') }, 400, 'no'],
        [{ handler: (request, response, next) => next() }, 200, 'ok'],
      ]) {
        const answer = await send(await serve(t, application(rateLimit({ limit: 0, ...options }))))
        assert.deepEqual([answer.status, answer.body], [status, body])
        assert.equal(answer.headers['x-ratelimit-limit'], '0')
        assert.equal(answer.headers['vary'], undefined)
      }
      for (const retryAfter of [7, () => 7, async () => 7]) {
        const answer = await send(await serve(t, application(rateLimit({ limit: 0, retryAfter, message: 'wait' }))))
        assert.equal(answer.headers['retry-after'], '7')
      }
    })

    test('figures on the request, under any name', async (t) => {
      const show = (request, response) => response.json({ info: request.limits, outcome: admissionOf(request).outcome })
      const where = await serve(t, application(rateLimit({ limit: 2, requestPropertyName: 'limits' }), show))
      const before = Date.now()
      const { info, outcome } = JSON.parse((await send(where, from('2001:db8:0:12ff::1'))).body)
      const { resetTime, ...figures } = info
      assert.deepEqual(figures, { limit: 2, used: 1, remaining: 1, key: '2001:db8:0:1200::/56' })
      assert.ok(Date.parse(resetTime) >= before + 59_000 && Date.parse(resetTime) <= Date.now() + 60_000)
      assert.equal(outcome, 'allowed')
    })

    test('figures are seen from wherever the request is seen', async (t) => {
      const part = express()
      const limitOf = (request) => request.rateLimit?.limit ?? null
      part.use(rateLimit({ limit: 3 }), (request, response, next) => {
        response.locals.seen = [request, new Proxy(request, {}), Object.create(request)].map(limitOf)
        next()
      })
      part.use('/alone', (request, response) => response.json(response.locals.seen))
      const served = await serve(t, part)
      assert.deepEqual(JSON.parse((await send(served, { path: '/alone' })).body), [3, 3, 3])
      // One in several, and one that was served alone before: Express changes the prototype of its requests.
      const whole = [express(), express()]
      for (const app of whole) app.use('/part', part)
      for (const app of whole) {
        app.use(({ ...request }, response, next) =>
          next('rateLimit' in request ? new Error('it is its own') : undefined),
        )
        app.use((request, response) => response.json([...(response.locals.seen ?? []), limitOf(request)]))
        const where = await serve(t, app)
        for (const [path, seen] of [
          ['/part', [3, 3, 3, 3]],
          ['/', [null]],
        ]) {
          assert.deepEqual(JSON.parse((await send(where, { path })).body), seen, path)
        }
      }
    })

    test('figures are a request’s own, whoever stands before it or beside it', async (t) => {
      const app = express()
      const limiter = rateLimit({ limit: 3 })
      const limitOf = (request) => request.rateLimit?.limit ?? null
      app.get('/first', limiter, (request, response) => response.json([limitOf(request)]))
      app.get('/proxy', (request, response, next) => limiter(new Proxy(request, {}), response, next))
      app.get('/heir', (request, response, next) => {
        Object.create(request).rateLimit = { limit: 7 }
        next()
      })
      app.get('/beside', (request, response, next) => {
        const done = () => next()
        const other = { method: 'GET', url: '/inner', headers: {}, rawHeaders: [], done }
        app.handle(Object.assign(Object.create(IncomingMessage.prototype), other), response, next)
      })
      app.get('/inner', rateLimit({ limit: 5, keyGenerator: () => 'inner' }), (request) => request.done())
      app.use((request, response) => response.json([limitOf(request)]))
      const part = express()
      part.request.rateLimit = { limit: 8 }
      part.get('/default', (request, response) => response.json([limitOf(request)]))
      const where = await serve(t, app)
      for (const [path, seen] of [
        ['/first', [3]],
        ['/proxy', [3]],
        ['/heir', [null]],
        ['/beside', [null]],
      ]) {
        assert.deepEqual(JSON.parse((await send(where, { path })).body), seen, path)
      }
      assert.deepEqual(JSON.parse((await send(await serve(t, part), { path: '/default' })).body), [8])
    })

    test('whoever sets the figures’ property last is read', async (t) => {
      const app = express()
      // On the prototype, where no figures are kept: a name that is taken.
      app.request.taken = 'theirs'
      for (const property of ['rateLimit', 'taken']) {
        const set = (value) => (request, response, next) => {
          request[property] = value
          next()
        }
        const read = (request, response, next) => {
          ;(response.locals.read ??= []).push(request[property].limit ?? request[property])
          next()
        }
        const limiter = rateLimit({ limit: 9, requestPropertyName: property })
        app.use(`/${property}`, set('before'), read, limiter, read, set('after'), read)
      }
      app.use((request, response) => response.json(response.locals.read))
      const where = await serve(t, app)
      for (const path of ['/rateLimit', '/rateLimit', '/taken', '/taken']) {
        assert.deepEqual(JSON.parse((await send(where, { path })).body), ['before', 9, 'after'], path)
      }
      assert.equal(app.request.taken, 'theirs')
    })

    test('a request that is of no application has its figures as its own', async () => {
      const [request, response] = [
        { ip: '192.0.2.1', headers: {} },
        { getHeader() {}, setHeader() {} },
      ]
      await new Promise((resolve) => rateLimit({ limit: 9 })(request, response, resolve))
      assert.deepEqual([Object.hasOwn(request, 'rateLimit'), request.rateLimit.limit], [true, 9])
    })

    test('resetKey and getKey, by address and by key', async (t) => {
      const limiter = rateLimit({ limit: 1 })
      const where = await serve(t, application(limiter))
      for (const address of ['192.0.2.1', '2001:db8::1']) {
        assert.equal(await limiter.getKey(address), undefined)
        assert.deepEqual(await statuses(where, 2, from(address)), [200, 429])
        const { totalHits, resetTime } = await limiter.getKey(ipKeyGenerator(address))
        assert.equal(totalHits, 1)
        assert.ok(resetTime.getTime() > Date.now())
        await limiter.resetKey(ipKeyGenerator(address))
        assert.deepEqual(await statuses(where, 2, from(address)), [200, 429])
      }
      await assert.rejects(limiter.resetKey('alice'), { code: 'ERR_TIDEGATE_INVALID_IP_ADDRESS' })
      for (const limit of [1, () => 1]) {
        const keyed = rateLimit({ limit, keyGenerator: () => 'alice' })
        const other = await serve(t, application(keyed))
        assert.deepEqual(await statuses(other, 2), [200, 429])
        assert.equal((await keyed.getKey('alice')).totalHits, 1)
        assert.equal(await keyed.getKey('bob'), undefined)
        await keyed.resetKey('alice')
        assert.deepEqual(await statuses(other, 1), [200])
      }
    })

    test('what a response shows not to count is given back', async (t) => {
      const answer = (request, response) => response.status(Number(request.query.status)).send('done')
      for (const [options, free, counted] of [
        [{ skipFailedRequests: true }, 404, 200],
        [{ skipSuccessfulRequests: true }, 302, 401],
        [
          { skipFailedRequests: true, requestWasSuccessful: (request, response) => response.statusCode === 404 },
          200,
          404,
        ],
        [
          {
            skipSuccessfulRequests: true,
            requestWasSuccessful: async (request, response) => response.statusCode === 404,
          },
          404,
          200,
        ],
      ]) {
        const limiter = rateLimit({ limit: 1, ...options })
        const where = await serve(t, application(limiter, answer))
        for (let sent = 0; sent < 3; sent++) {
          assert.deepEqual(await statuses(where, 1, { path: `/?status=${free}` }), [free])
          await until(async () => (await limiter.getKey('127.0.0.1')) === undefined)
        }
        assert.deepEqual(await statuses(where, 2, { path: `/?status=${counted}` }), [counted, 429])
      }
    })

    test('a function that fails afterwards is told, and what was taken stays taken', async (t) => {
      for (const requestWasSuccessful of [
        () => {
          throw new Error('boom')
        },
        async () => {
          throw new Error('boom')
        },
      ]) {
        const logger = keeper()
        const limiter = rateLimit({ limit: 1, skipSuccessfulRequests: true, requestWasSuccessful, logger })
        const where = await serve(t, application(limiter))
        assert.deepEqual(await statuses(where, 2), [200, 429])
        assert.deepEqual(logger.codes, ['ERR_TIDEGATE_REQUEST_WAS_SUCCESSFUL'])
      }
    })

    test('stacked limiters tell of each other, and one that is there twice charges once', async (t) => {
      const wide = rateLimit({ limit: 9, name: 'wide', standardHeaders: 'draft-8' })
      const narrow = rateLimit({ limit: 2, name: 'narrow', standardHeaders: 'draft-8' })
      const app = express()
      app.use(wide, wide)
      app.get('/', narrow, (request, response) => response.json(request.rateLimit))
      const where = await serve(t, app)
      const [first, second, refused] = await sends(where, 3)
      assert.equal(first.headers['ratelimit'], '"wide";r=8;t=60, "narrow";r=1;t=60')
      assert.equal(first.headers['x-ratelimit-limit'], '2')
      assert.equal(JSON.parse(first.body).limit, 2)
      assert.match(second.headers['ratelimit'], /"wide";r=7;.*"narrow";r=0/)
      assert.deepEqual([refused.status, JSON.parse(refused.body)['violated-policies']], [429, ['narrow']])
      assert.match(refused.headers['ratelimit'], /"wide";r=6;.*"narrow";r=0/)
    })

    test('a window slides, and the limit comes back with time', async (t) => {
      const clock = new FakeClock(1_700_000_000_000)
      const where = await serve(t, application(rateLimit({ clock, windowMs: '10s', limit: 2 })))
      assert.deepEqual(await statuses(where, 1), [200])
      clock.advance('9s')
      assert.deepEqual(await statuses(where, 2), [200, 429])
      clock.advance('1s')
      assert.deepEqual(await statuses(where, 2), [200, 429])
      const fixed = await serve(
        t,
        application(rateLimit({ clock, windowMs: 10_000, limit: 2, algorithm: 'fixed_window' })),
      )
      assert.deepEqual(await statuses(fixed, 3), [200, 200, 429])
      clock.advance('10s')
      assert.deepEqual(await statuses(fixed, 3), [200, 200, 429])
    })

    test('a flood is counted exactly', async (t) => {
      const where = await serve(t, application(rateLimit({ limit: 20 })))
      const answers = await Promise.all(Array.from({ length: 200 }, () => send(where)))
      assert.equal(answers.filter(({ status }) => status === 200).length, 20)
    })
  })
}
