// What the stores are to the types of the packages that take them. Their own types are not checked.
import rateLimitOfFastify from '@fastify/rate-limit'
import { ThrottlerModule, type ThrottlerStorage } from '@nestjs/throttler'
import { rateLimit, type Store } from 'express-rate-limit'
import Fastify from 'fastify'
import { rateLimiter, type Store as HonoStore } from 'hono-rate-limiter'
import { Limiter } from 'tidegate'
import { expressStore, fastifyStore, throttlerStorage, type ExpressStoreOptions } from 'tidegate/stores'
import { FakeClock } from 'tidegate/testing'

const limiter = new Limiter({ rules: { api: '5/m' } })

export const express: Store = expressStore({ url: 'redis://127.0.0.1', prefix: 'a', deadline: '1s' })
export const middleware = rateLimit({ store: expressStore({ limiter, rule: 'api' }) })
export const decides = expressStore({ limit: 5, algorithm: 'token_bucket', burst: 9, clock: new FakeClock() })

export const hono: HonoStore = expressStore({ limiter })
export const handler = rateLimiter({ keyGenerator: (c) => c.req.path, store: expressStore({ windowMs: 1000 }) })

export const storage: ThrottlerStorage = throttlerStorage({ algorithm: 'sliding_window_log', onError: 'allow' })
export const module = ThrottlerModule.forRoot({ throttlers: [{ ttl: 1000, limit: 5 }], storage })

const app = Fastify()
await app.register(rateLimitOfFastify, { store: fastifyStore({ algorithm: 'sliding_window' }) })
app.createRateLimit({ store: fastifyStore() })

// @ts-expect-error a limiter has its own url
export const both: ExpressStoreOptions = { limiter, url: 'redis://127.0.0.1' }
// @ts-expect-error a rule is a limiter's
export const alone: ExpressStoreOptions = { rule: 'api' }
// @ts-expect-error there is no such algorithm
expressStore({ limit: 1, algorithm: 'leaky' })
// @ts-expect-error there is no such answer
throttlerStorage({ onError: 'deny' })
// @ts-expect-error it is another limiter's
fastifyStore({ redis: {} })
