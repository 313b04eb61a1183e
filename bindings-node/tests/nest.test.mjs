// Nest on Express and on Fastify over sockets; the application is tests/nest/app.ts, compiled as users compile theirs.
import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { createRequire } from 'node:module'
import path from 'node:path'
import { describe, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { Catch, Controller } from '@nestjs/common'
import { Policy } from 'tidegate'
import { RateLimit, RateLimitException, Tidegate } from 'tidegate/nest'

import { send, sends, statuses, until } from './support/express.mjs'
import { from, login, ROUTES, standing } from './support/frameworks.mjs'
import { prefix, shared } from './support/servers.mjs'

const require = createRequire(import.meta.url)
const here = fileURLToPath(new URL('.', import.meta.url))
const tsc = path.join(path.dirname(require.resolve('typescript/package.json')), 'bin', 'tsc')
execFileSync(process.execPath, [tsc, '-p', path.join(here, 'nest')], { stdio: 'inherit' })
const app = require('./nest/dist/app.js')

const redis = await shared('server')
const RULES = { rules: { login: '2/m' } }

/** Listens until the test ends; returns where. */
async function listen(t, server) {
  t.after(() => server.close())
  await server.listen(0, '127.0.0.1')
  return { host: '127.0.0.1', port: server.getHttpServer().address().port }
}

for (const platform of ['express', 'fastify']) {
  const serve = async (t, options, ...controllers) => listen(t, await app.serve(platform, options, controllers))

  describe(platform, () => {
    test('decorators on classes and methods, on a clock', async (t) => {
      const { clock, policy } = standing(t)
      const where = await serve(t, { ...RULES, policy }, app.CatsController)
      const one = await send(where, { path: '/cats/one' })
      assert.deepEqual([one.status, one.body], [200, 'one'])
      assert.equal(one.headers['x-ratelimit-limit'], '2')
      assert.equal(one.headers['ratelimit'], '"CatsController";r=1;t=60')
      assert.deepEqual(await statuses(where, 2, { path: '/cats/two' }), [200, 429])
      const refused = await send(where, { path: '/cats/one' })
      assert.equal(refused.status, 429)
      assert.equal(refused.headers['retry-after'], '60')
      assert.equal(refused.headers['content-type'], 'application/problem+json')
      assert.equal(refused.headers['vary'], 'Accept')
      assert.equal(JSON.parse(refused.body).status, 429)
      const text = await send(where, { path: '/cats/one', headers: { accept: 'text/html' } })
      assert.match(text.headers['content-type'], /^text\/plain/)
      assert.match(text.body, /^Too many requests\./)
      assert.deepEqual(await statuses(where, 2, { path: '/cats/own' }), [200, 429])
      assert.deepEqual(await statuses(where, 3, { path: '/cats/free' }), [200, 200, 200])
      clock.advance('1m')
      assert.deepEqual(await statuses(where, 1, { path: '/cats/one' }), [200])
    })

    test('limit, key and cost may be functions, and what is refunded comes back', async (t) => {
      const { policy } = standing(t)
      const where = await serve(t, { ...RULES, policy }, app.CatsController)
      const path = '/cats/keyed'
      assert.deepEqual(await statuses(where, 3, { path, ...from('poor') }), [200, 200, 429])
      assert.deepEqual(await statuses(where, 4, { path, ...from('rich') }), [200, 200, 200, 429])
      assert.deepEqual(await statuses(where, 2, { path, ...from('dear', { 'x-cost': '2' }) }), [200, 429])
      const left = { limits: [{ limit: 2, window: '1m' }, '100/h'] }
      const document = { version: 1, rules: { 'CatsController.broken': left }, http: { default: { rules: [] } } }
      const { limiter } = policy.beside(document)
      for (let times = 0; times < 4; times++) {
        assert.equal((await send(where, { path: '/cats/broken' })).status, 503)
        await until(async () => (await limiter.peek('CatsController.broken', ['ip', '127.0.0.1'])).remaining === 2)
      }
      const thrown = await send(where, { path: '/cats/thrown' })
      assert.deepEqual([thrown.status, JSON.parse(thrown.body).message], [418, 'no key'])
    })

    test('a default for all handlers, rules by name, key and skip of the module', async (t) => {
      const { policy } = standing(t)
      const options = {
        ...RULES,
        policy,
        default: '2/m',
        headers: ['draft-7'],
        key: (request) => request.headers['x-from'],
        skip: async (request) => request.headers['x-from'] === 'friend',
      }
      const where = await serve(t, options, app.DogsController)
      const first = await send(where, { path: '/dogs', ...from('ada') })
      assert.deepEqual(JSON.parse(first.body), { route: 'default' })
      assert.match(first.headers['ratelimit'], /^limit=2, remaining=1/)
      assert.equal(first.headers['x-ratelimit-limit'], undefined)
      assert.deepEqual(await statuses(where, 2, { path: '/dogs', ...from('ada') }), [200, 429])
      assert.deepEqual(await statuses(where, 1, { path: '/dogs', ...from('bob') }), [200])
      assert.deepEqual(await statuses(where, 3, { path: '/dogs', ...from('friend') }), [200, 200, 200])
      assert.deepEqual(await statuses(where, 1, { path: '/dogs/login', ...from('ada') }), [200])
      assert.deepEqual(await statuses(where, 2, { path: '/dogs/sign-in', ...from('ada') }), [200, 429])
    })

    test('options from a provider', async (t) => {
      const where = await serve(t, app.ASYNC, app.DogsController)
      assert.deepEqual(await statuses(where, 2, { path: '/dogs' }), [200, 429])
    })

    test('the routes of a document, by its trusted proxies and the user', async (t) => {
      const { policy } = standing(t, ROUTES)
      const user = async ({ headers }) => headers['x-from']
      const where = await serve(t, { policy, user }, app.RoutesController)
      assert.deepEqual(await statuses(where, 2, login('203.0.113.1')), [201, 429])
      assert.deepEqual(await statuses(where, 1, login('203.0.113.2')), [201])
      for (const path of ['/login?x=1', '/%6Cogin', 'http://elsewhere.example/login']) {
        const { status } = await send(where, { ...login('203.0.113.1'), path })
        assert.equal(status, path === '/%6Cogin' && platform === 'express' ? 404 : 429, path)
      }
      assert.deepEqual(await statuses(where, 1, { ...login('203.0.113.2'), path: '/sign-in' }), [429])
      // Two guards, one charge.
      assert.deepEqual(await statuses(where, 4, { path: '/api/x', ...from('ada') }), [200, 200, 200, 429])
      assert.equal((await send(where, { path: '/api/x' })).status, 403)
      assert.equal((await send(where, { path: '/api/health' })).status, 200)
    })

    test("without the module's filter the application's own answers refusals", async (t) => {
      const { policy } = standing(t)
      const caught = []
      class Mine {
        catch(exception, host) {
          caught.push([exception instanceof RateLimitException, exception.getStatus(), exception.getResponse().status])
          host.switchToHttp().getResponse().status(420).send('mine')
        }
      }
      Catch()(Mine)
      const server = await app.serve(platform, { ...RULES, policy, filter: false }, [app.CatsController])
      server.useGlobalFilters(new Mine())
      const where = await listen(t, server)
      const [, refused] = await sends(where, 2, { path: '/cats/own' })
      assert.deepEqual([refused.status, refused.body, refused.headers['retry-after']], [420, 'mine', '60'])
      assert.deepEqual(caught, [[true, 429, 429]])
    })

    test('two applications on one Redis share buckets by the names of rules', async (t) => {
      const shared = { ...RULES, url: redis.url, prefix: prefix(), deadline: '10s' }
      const one = await serve(t, shared, app.DogsController)
      const other = await serve(t, shared, app.DogsController)
      assert.deepEqual(await statuses(one, 1, { path: '/dogs/login' }), [200])
      assert.deepEqual(await statuses(other, 2, { path: '/dogs/login' }), [200, 429])
    })

    test('a store that is down: onError decides', async (t) => {
      for (const [onError, expected] of [
        ['allow', [200, 200, 200]],
        ['deny', [503, 503, 503]],
        ['local', [200, 200, 429]],
      ]) {
        const down = { ...RULES, url: 'redis://127.0.0.1:1', prefix: prefix(), deadline: '200ms', onError }
        const where = await serve(t, down, app.DogsController)
        assert.deepEqual(await statuses(where, 3, { path: '/dogs/login' }), expected, onError)
      }
    })

    test('what cannot work is refused when the application starts', async () => {
      const starting = async (options, setting) => {
        const controllers = setting === undefined ? [app.RoutesController] : [controllerOf(setting)]
        const server = await app.serve(platform, options, controllers)
        try {
          await server.init()
        } finally {
          await server.close()
        }
      }
      for (const [options, setting, code, hint] of [
        [{ throttlers: [] }, '5/m', 'ERR_TIDEGATE_UNKNOWN_OPTION', /default/],
        [{ document: ROUTES }, '5/m', 'ERR_TIDEGATE_UNKNOWN_OPTION', /write policy/],
        [{}, '5/fortnight', 'invalid_rule', /fortnight/],
        [{}, { limit: 5 }, 'ERR_TIDEGATE_WINDOW', /whole milliseconds/],
        [{}, { limit: -1, ttl: 5 }, 'ERR_TIDEGATE_LIMIT', /whole number/],
        [{}, { limit: 1, ttl: 5, limits: '5/m' }, 'ERR_TIDEGATE_SETTING', /one of/],
        [{}, { limit: 1, ttl: 5, keys: 1 }, 'ERR_TIDEGATE_UNKNOWN_OPTION', /write key/],
        [RULES, { rule: 'logn' }, 'ERR_TIDEGATE_SETTING', /write login/],
        [{}, { route: 'login' }, 'ERR_TIDEGATE_SETTING', /forRoot\(\{ policy/],
        [{ policy: ROUTES }, '5/m', 'ERR_TIDEGATE_SETTING', /into the document/],
        [{ policy: ROUTES }, { route: 'nowhere' }, 'invalid_request', /nowhere/],
        [{ policy: ROUTES, key: () => 1 }, undefined, 'ERR_TIDEGATE_UNKNOWN_OPTION', /into the document/],
      ]) {
        await assert.rejects(
          () => starting(options, setting),
          (error) => error.code === code && hint.test(error.message),
          JSON.stringify([options, setting]),
        )
      }
      const twins = [controllerOf('5/m'), controllerOf('6/m')]
      const server = await app.serve(platform, {}, twins)
      await assert.rejects(() => server.init(), { code: 'ERR_TIDEGATE_SHARED_NAME' })
      await server.close()
    })
  })
}

test('what the module has opened ends with it, and a policy of the application does not', async () => {
  const policy = new Policy(ROUTES)
  const server = await app.serve('express', { policy }, [app.RoutesController])
  await server.init()
  await server.close()
  assert.equal((await policy.admit(policy.request('GET', '/'))).allowed, true)
  policy.close()

  const own = await app.serve('express', RULES, [app.DogsController])
  await own.init()
  const limit = own.get(Tidegate).limitOf(app.DogsController, app.DogsController.prototype.login)
  await own.close()
  const request = { method: 'GET', url: '/', ip: '127.0.0.1', headers: {}, rawHeaders: [], socket: null }
  await assert.rejects(() => limit.judge({ request, response: {} }, null), { code: 'ERR_TIDEGATE_CLOSED' })
})

/** A controller whose handler is limited so. */
function controllerOf(setting) {
  class Some {
    handler() {}
  }
  RateLimit(setting)(Some.prototype, 'handler', Object.getOwnPropertyDescriptor(Some.prototype, 'handler'))
  Controller('some')(Some)
  return Some
}
