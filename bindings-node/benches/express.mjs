// A contestant's part in the cases of Express: one route behind no middleware, ours, or express-rate-limit's.
import { once } from 'node:events'
import { IncomingMessage, ServerResponse } from 'node:http'
import { Duplex } from 'node:stream'

import { measured } from './checks.mjs'
import { ioredis, ioredisCommands, nodeRedis, nodeRedisCommands, OURS } from './peers.mjs'

export const BARE = 'bare'
/** As rate-limit-redis's readme has it, whose fields are the fewest that tell of the limit; the same of ours. */
const FIELDS = { standardHeaders: 'draft-6', legacyHeaders: false }
/** More than an address sees in a run, even alone under wrk. */
const UNITS = 10_000_000
const WINDOW_MS = 60_000
/** What a browser sends along with a request for data. */
const HEADERS = {
  host: 'api.example.com',
  connection: 'keep-alive',
  'user-agent': 'Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0',
  accept: 'application/json',
  'accept-encoding': 'gzip, deflate, br, zstd',
  'accept-language': 'en-GB,en;q=0.8',
  referer: 'https://example.com/',
  cookie: 'session=0123456789abcdef0123456789abcdef',
}
const RAW_HEADERS = Object.entries(HEADERS).flat()

/** Each gives a function that makes its middleware for so many units in a window. */
const MIDDLEWARE = {
  [BARE]: async () => () => (request, response, next) => next(),
  [OURS]: (urls) => ours(urls, FIELDS),
  [`${OURS}, its default fields`]: (urls) => ours(urls, {}),
  'express-rate-limit on ioredis': async (urls) => theirs(ioredisCommands(await ioredis(urls, false))),
  'express-rate-limit on ioredis, auto-pipelining': async (urls) => theirs(ioredisCommands(await ioredis(urls, true))),
  'express-rate-limit on node-redis': async (urls) => theirs(nodeRedisCommands(await nodeRedis(urls))),
}

export const CONTESTANTS = Object.keys(MIDDLEWARE)

async function ours(urls, fields) {
  const { rateLimit } = await import('../dist/express.mjs')
  // A store that fails is no answer here.
  const answered = { onError: 'deny', deadline: '10s' }
  return (limit, windowMs) => rateLimit({ windowMs, limit, url: urls[0], ...answered, ...fields })
}

async function theirs(sendCommand) {
  const { rateLimit } = await import('express-rate-limit')
  const { RedisStore } = await import('rate-limit-redis')
  return (limit, windowMs) => rateLimit({ windowMs, limit, ...FIELDS, store: new RedisStore({ sendCommand }) })
}

async function application(middleware) {
  const { default: express } = await import('express')
  const app = express()
  app.use(middleware)
  app.get('/orders', (request, response) => response.end('[]'))
  return app
}

/** Plays rounds of so many requests, so many at once, without a socket. Every one must be answered with 200. */
export async function handled(who, urls) {
  const make = await MIDDLEWARE[who](urls)
  if (who !== BARE) await prove(await application(make(3, WINDOW_MS)))
  const app = await application(make(UNITS, WINDOW_MS))
  return ({ flight, requests }) => {
    const connections = Array.from({ length: flight }, () => new Connection())
    return measured(requests, connections, (connection) => connection.requests(app, requests / flight))
  }
}

/** Serves on a port of its own choice, which every round tells. */
export async function served(who, urls) {
  const app = await application((await MIDDLEWARE[who](urls))(UNITS, WINDOW_MS))
  const server = app.listen(0, '127.0.0.1')
  await once(server, 'listening')
  return async () => server.address().port
}

/** That it limits, by address: of five requests of an address three pass, and the next address has its own. */
async function prove(app) {
  const connection = new Connection()
  // Of an address that no other contestant has proved itself on.
  const address = `172.${16 + below(16)}.${below(256)}`
  for (const host of [1, 2]) {
    for (let number = 1; number <= 5; number += 1) {
      const { statusCode: status } = await connection.request(app, `${address}.${host}`)
      if (status !== (number <= 3 ? 200 : 429))
        throw new Error(`of 3 units, request ${number} is answered with ${status}`)
    }
  }
}

/** The server's end of a connection on which nothing arrives, and whose responses go nowhere. */
class Connection extends Duplex {
  remoteAddress = ''

  /** The response to a request of this address, when it has been written. */
  request(app, address) {
    this.remoteAddress = address
    const request = new IncomingMessage(this)
    Object.assign(request, {
      method: 'GET',
      url: '/orders?page=1',
      httpVersion: '1.1',
      httpVersionMajor: 1,
      httpVersionMinor: 1,
    })
    request.rawHeaders = RAW_HEADERS
    request.headers = { ...HEADERS }
    request.push(null)
    return new Promise((resolve) => {
      const response = new ServerResponse(request)
      response.assignSocket(this)
      response.on('finish', () => {
        response.detachSocket(this)
        resolve(response)
      })
      app(request, response)
    })
  }

  async requests(app, count) {
    for (let number = 0; number < count; number += 1) {
      const address = `10.0.${below(40)}.${below(250)}`
      const { statusCode: status } = await this.request(app, address)
      if (status !== 200) throw new Error(`a request that should pass is answered with ${status}`)
    }
  }

  _read() {}

  _write(chunk, encoding, done) {
    done()
  }
}

/** @param {number} end */
function below(end) {
  return Math.floor(Math.random() * end)
}
