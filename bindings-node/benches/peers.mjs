// Who is compared. Each is a function that connects, and gives a function that makes a limiter of so many units in a
// window: `check` is what its user calls, and `allowed` what its user reads in the answer. A limiter that rejects with
// something that is no error has refused.
//
// @typedef {{ check: (key: string) => Promise<unknown>, allowed: (answer: any) => boolean, close?: () => void }} Limiter
// @typedef {(units: number, windowMs: number) => Promise<Limiter>} Make
import { Cluster, Redis } from 'ioredis'
import { RedisStore } from 'rate-limit-redis'
import { RateLimiterRedis } from 'rate-limiter-flexible'
import { createClient } from 'redis'

export const OURS = 'tidegate'

/** A fixed window, the least that a limiter by script can do: one command, and what is left or how long to wait. */
const FIXED_WINDOW = `
local hits = redis.call('INCR', KEYS[1])
if hits == 1 then redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
if hits > tonumber(ARGV[1]) then return { 0, redis.call('PTTL', KEYS[1]) } end
return { 1, ARGV[1] - hits }
`

/** @type {Record<string, (urls: string[]) => Promise<Make>>} */
export const PEERS = {
  [OURS]: ours,
  'ioredis EVALSHA': (urls) => evalsha(ioredis(urls, false)),
  'ioredis EVALSHA, auto-pipelining': (urls) => evalsha(ioredis(urls, true)),
  'rate-limiter-flexible': (urls) => flexible(ioredis(urls, false)),
  'rate-limiter-flexible, auto-pipelining': (urls) => flexible(ioredis(urls, true)),
  'rate-limiter-flexible, blocking in memory': (urls) => flexible(ioredis(urls, false), { inMemory: true }),
  'rate-limit-redis on ioredis': (urls) => store(ioredisCommands(ioredis(urls, false))),
  'rate-limit-redis on ioredis, auto-pipelining': (urls) => store(ioredisCommands(ioredis(urls, true))),
  'rate-limit-redis on node-redis': async (urls) => store(nodeRedisCommands(await nodeRedis(urls))),
  'node-redis EVALSHA': nodeRedisEvalsha,
}

/** @param {string[]} urls */
async function ours(urls) {
  const { Limiter } = await import('../dist/index.mjs')
  const url = urls.length === 1 ? urls[0] : `redis+cluster://${urls.map((one) => new URL(one).host).join(',')}`
  return async (units, windowMs) => {
    // A store that fails is no answer here.
    const rules = { login: { limits: `${units}/${windowMs}ms token_bucket`, on_error: 'deny' } }
    const limiter = new Limiter({ rules, url, deadline: '10s' })
    await limiter.ready()
    return {
      check: (key) => limiter.check('login', key),
      allowed: (decision) => decision.allowed,
      close: () => limiter.close(),
    }
  }
}

/** @param {string[]} urls @param {boolean} enableAutoPipelining */
export function ioredis(urls, enableAutoPipelining) {
  if (urls.length === 1) return new Redis(urls[0], { enableAutoPipelining })
  const nodes = urls.map((url) => ({ host: new URL(url).hostname, port: Number(new URL(url).port) }))
  return new Cluster(nodes, { enableAutoPipelining })
}

/** @param {string[]} urls */
export function nodeRedis(urls) {
  return createClient({ url: urls[0] }).connect()
}

/** How rate-limit-redis's readme has ioredis send. @param {Redis} client */
export function ioredisCommands(client) {
  return (command, ...args) => client.call(command, ...args)
}

/** @param {Awaited<ReturnType<typeof nodeRedis>>} client */
export function nodeRedisCommands(client) {
  return (...args) => client.sendCommand(args)
}

/** @param {Redis | Cluster} client */
async function evalsha(client) {
  if (client instanceof Cluster) await new Promise((resolve) => client.once('ready', resolve))
  const masters = client instanceof Cluster ? client.nodes('master') : [client]
  const [sha] = await Promise.all(masters.map((master) => master.script('LOAD', FIXED_WINDOW)))
  return async (units, windowMs) => ({
    check: (key) => client.evalsha(sha, 1, `fixed:${key}`, units, windowMs),
    allowed: ([allowed]) => allowed === 1,
  })
}

/** @param {string[]} urls @returns {Promise<Make>} */
async function nodeRedisEvalsha(urls) {
  const client = await nodeRedis(urls)
  const sha = await client.scriptLoad(FIXED_WINDOW)
  return async (units, windowMs) => {
    const limit = [String(units), String(windowMs)]
    return {
      check: (key) => client.evalSha(sha, { keys: [`fixed:${key}`], arguments: limit }),
      allowed: ([allowed]) => allowed === 1,
    }
  }
}

/** @param {Redis | Cluster} storeClient @returns {Promise<Make>} */
async function flexible(storeClient, { inMemory = false } = {}) {
  return async (points, windowMs) => {
    const block = inMemory ? { inMemoryBlockOnConsumed: points } : {}
    const limiter = new RateLimiterRedis({ storeClient, points, duration: windowMs / 1_000, ...block })
    return { check: (key) => limiter.consume(key), allowed: (answer) => answer.remainingPoints >= 0 }
  }
}

/** The store of express-rate-limit, as that would use it. @returns {Promise<Make>} */
async function store(sendCommand) {
  return async (units, windowMs) => {
    const made = new RedisStore({ sendCommand })
    await made.init({ windowMs })
    return { check: (key) => made.increment(key), allowed: ({ totalHits }) => totalHits <= units }
  }
}
