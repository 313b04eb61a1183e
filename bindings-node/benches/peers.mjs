// Who is compared. What a contestant needs is imported when it begins: what the others need would lie in its memory, and
// be looked at whenever that is cleaned up.
import { once } from 'node:events'

/**
 * A limiter: `check` is what its user calls, and `allowed` what its user reads in the answer. One that rejects with
 * something that is no error has refused.
 *
 * @typedef {{ check: (key: string) => Promise<unknown>, allowed: (answer: any) => boolean, close?: () => void }} Limiter
 * @typedef {(units: number, windowMs: number) => Promise<Limiter>} Make
 */

export const OURS = 'tidegate'

/** A fixed window, the least that a limiter by script can do: one command, and what is left or how long to wait. */
const FIXED_WINDOW = `
local hits = redis.call('INCR', KEYS[1])
if hits == 1 then redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
if hits > tonumber(ARGV[1]) then return { 0, redis.call('PTTL', KEYS[1]) } end
return { 1, ARGV[1] - hits }
`

/**
 * Each connects, and gives what makes its limiters.
 *
 * @type {Record<string, (urls: string[]) => Promise<Make>>}
 */
export const PEERS = {
  [OURS]: ours,
  'ioredis EVALSHA': async (urls) => evalsha(await ioredis(urls, false)),
  'ioredis EVALSHA, auto-pipelining': async (urls) => evalsha(await ioredis(urls, true)),
  'rate-limiter-flexible': async (urls) => flexible(await ioredis(urls, false)),
  'rate-limiter-flexible, auto-pipelining': async (urls) => flexible(await ioredis(urls, true)),
  'rate-limiter-flexible, blocking in memory': async (urls) => flexible(await ioredis(urls, false), { inMemory: true }),
  'rate-limit-redis on ioredis': async (urls) => store(ioredisCommands(await ioredis(urls, false))),
  'rate-limit-redis on ioredis, auto-pipelining': async (urls) => store(ioredisCommands(await ioredis(urls, true))),
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
export async function ioredis(urls, enableAutoPipelining) {
  const { Cluster, Redis } = await import('ioredis')
  if (urls.length === 1) return new Redis(urls[0], { enableAutoPipelining })
  const nodes = urls.map((url) => ({ host: new URL(url).hostname, port: Number(new URL(url).port) }))
  return new Cluster(nodes, { enableAutoPipelining })
}

/** @param {string[]} urls */
export async function nodeRedis(urls) {
  const { createClient } = await import('redis')
  return createClient({ url: urls[0] }).connect()
}

/** How rate-limit-redis's readme has ioredis send. @param {Awaited<ReturnType<typeof ioredis>>} client */
export function ioredisCommands(client) {
  return (command, ...args) => client.call(command, ...args)
}

/** @param {Awaited<ReturnType<typeof nodeRedis>>} client */
export function nodeRedisCommands(client) {
  return (...args) => client.sendCommand(args)
}

/** @param {Awaited<ReturnType<typeof ioredis>>} client @returns {Promise<Make>} */
async function evalsha(client) {
  if (client.status !== 'ready') await once(client, 'ready')
  const masters = client.isCluster ? client.nodes('master') : [client]
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

/** @param {Awaited<ReturnType<typeof ioredis>>} storeClient @returns {Promise<Make>} */
async function flexible(storeClient, { inMemory = false } = {}) {
  const { RateLimiterRedis } = await import('rate-limiter-flexible')
  return async (points, windowMs) => {
    const block = inMemory ? { inMemoryBlockOnConsumed: points } : {}
    const limiter = new RateLimiterRedis({ storeClient, points, duration: windowMs / 1_000, ...block })
    return { check: (key) => limiter.consume(key), allowed: () => true }
  }
}

/** The store of express-rate-limit, as that would use it. @returns {Promise<Make>} */
async function store(sendCommand) {
  const { RedisStore } = await import('rate-limit-redis')
  return async (units, windowMs) => {
    const made = new RedisStore({ sendCommand })
    await made.init({ windowMs })
    return { check: (key) => made.increment(key), allowed: ({ totalHits }) => totalHits <= units }
  }
}
