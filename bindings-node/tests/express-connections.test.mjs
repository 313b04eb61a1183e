// Connections that end early, live long, or are none of a network: real applications of both versions of Express.
import assert from 'node:assert/strict'
import { mkdtemp, rm } from 'node:fs/promises'
import http from 'node:http'
import os from 'node:os'
import path from 'node:path'
import { describe, test } from 'node:test'
import { rateLimit } from 'tidegate/express'
import './support/servers.mjs'
import { errors, keeper, send, sends, serve, statuses, trusting, until, VERSIONS } from './support/express.mjs'

for (const [version, express] of Object.entries(VERSIONS)) {
  describe(version, () => {
    const application = (limiter, answer) => trusting(express, limiter, answer)

    test('a client that goes away is a failed request, once', async (t) => {
      const limiter = rateLimit({ limit: 2, skipFailedRequests: true, skipSuccessfulRequests: true })
      let release
      const hold = (request, response) => {
        if (request.path === '/hold') release = () => response.send('late')
        else response.send('ok')
      }
      const where = await serve(t, application(limiter, hold))
      const request = http.request({ ...where, path: '/hold', agent: false })
      request.on('error', () => {})
      request.end()
      await until(() => release)
      assert.equal((await limiter.getKey('127.0.0.1')).totalHits, 1)
      request.destroy()
      await until(async () => (await limiter.getKey('127.0.0.1')) === undefined)
      release()
      assert.deepEqual(await statuses(where, 2), [200, 200])
      await until(async () => (await limiter.getKey('127.0.0.1')) === undefined)
      // Without these options it stays charged: whoever leaves has had the work done.
      const other = rateLimit({ limit: 1 })
      release = undefined
      const there = await serve(t, application(other, hold))
      const leaving = http.request({ ...there, path: '/hold', agent: false })
      leaving.on('error', () => {})
      leaving.end()
      await until(() => release)
      leaving.destroy()
      assert.deepEqual(await statuses(there, 1), [429])
    })

    test('nothing is answered twice', async (t) => {
      let decided
      const app = express()
      app.use((request, response, next) => {
        response.send('early')
        next()
      })
      app.use(rateLimit({ limit: (request) => Number(request.query.limit) }))
      app.use((request) => (decided = request.rateLimit))
      const where = await serve(t, app.use(errors))
      const passed = await send(where, { path: '/?limit=5' })
      assert.deepEqual([passed.status, passed.body], [200, 'early'])
      await until(() => decided)
      const refused = await send(where, { path: '/?limit=0' })
      assert.deepEqual([refused.status, refused.body], [200, 'early'])
      assert.deepEqual(await statuses(where, 1, { path: '/?limit=7' }), [200])
    })

    test('HEAD, OPTIONS and kept connections', async (t) => {
      const where = await serve(t, application(rateLimit({ limit: 3 })))
      const agent = new http.Agent({ keepAlive: true, maxSockets: 1 })
      t.after(() => agent.destroy())
      const methods = ['HEAD', 'OPTIONS', 'GET', 'HEAD', 'OPTIONS', 'GET']
      const answers = []
      for (const method of methods) answers.push(await send(where, { method, agent }))
      assert.deepEqual(
        answers.map(({ status }) => status),
        [200, 200, 200, 429, 429, 429],
      )
      assert.deepEqual(
        [answers[3].body, answers[3].headers['content-length']],
        ['', answers[5].headers['content-length']],
      )
      assert.ok(answers[5].body.length > 0)
    })

    test('streams of events and upgrades pass as the application has them', async (t) => {
      const stream = (request, response) => {
        response.type('text/event-stream')
        response.write('data: 1\n\n')
        setTimeout(() => response.end('data: 2\n\n'), 20)
      }
      const app = application(rateLimit({ limit: 1, skipFailedRequests: true }), stream)
      const [events, refused] = await sends(await serve(t, app), 2)
      assert.deepEqual([events.body, events.headers['x-ratelimit-remaining']], ['data: 1\n\ndata: 2\n\n', '0'])
      assert.equal(refused.status, 429)
      const server = http.createServer(app)
      server.on('upgrade', (request, socket) =>
        socket.end('HTTP/1.1 101 Switching Protocols\r\nUpgrade: echo\r\nConnection: Upgrade\r\n\r\n'),
      )
      await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve))
      t.after(() => server.close())
      const upgraded = await new Promise((resolve, reject) => {
        const headers = { Connection: 'Upgrade', Upgrade: 'echo' }
        const request = http.request({ host: '127.0.0.1', port: server.address().port, headers, agent: false })
        request.on('upgrade', resolve).on('error', reject).end()
      })
      assert.equal(upgraded.statusCode, 101)
    })

    test('a Unix socket has no addresses: its clients share one limit, and that is told', async (t) => {
      const folder = await mkdtemp(path.join(os.tmpdir(), 'tidegate-'))
      t.after(() => rm(folder, { recursive: true }))
      const logger = keeper()
      const app = express().use(rateLimit({ limit: 1, logger }))
      const where = await serve(t, app, path.join(folder, 'socket'))
      assert.deepEqual(await statuses(where, 2), [404, 429])
      assert.deepEqual(logger.codes, ['ERR_TIDEGATE_UNDEFINED_IP_ADDRESS'])
    })

    test('closed twice, a limiter does not hang', async (t) => {
      const limiter = rateLimit()
      const where = await serve(t, application(limiter))
      assert.deepEqual(await statuses(where, 1), [200])
      limiter.close()
      limiter.close()
      const answer = await send(where)
      assert.deepEqual([answer.status, answer.body.includes('closed')], [500, true])
    })
  })
}
