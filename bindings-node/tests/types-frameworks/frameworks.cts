// The same in a file that is compiled to CommonJS.
import Fastify, { type FastifyRequest } from 'fastify'
import { Hono } from 'hono'
import Koa from 'koa'
import { type Admission, Policy } from 'tidegate'
import fastifyLimit, { admissionOf, rateLimit as fastifyNamed, type RateLimitInfo } from 'tidegate/fastify'
import { rateLimit as honoLimit } from 'tidegate/hono'
import { rateLimit as koaLimit, SetupError } from 'tidegate/koa'
import { FakeClock } from 'tidegate/testing'

const policy = new Policy('limits.toml')
const clock = new FakeClock()

const fastify = Fastify()
fastify.register(fastifyLimit, { max: 5, timeWindow: '1 minute', clock, url: undefined })
fastify.register(fastifyNamed, { policy, user: (request: FastifyRequest) => request.headers['x-user']?.at(0) })
fastify.get('/', { config: { rateLimit: { max: async (_, key) => key.length, groupId: 'a' } } }, async (request) => {
  const info: RateLimitInfo | null = request.rateLimitInfo
  const admission: Admission | undefined = admissionOf(request)
  return { left: info?.remaining, admission: admission?.allowed }
})
fastify.get('/named', { config: { rateLimit: { route: 'login' } } }, async () => 'hello')
fastify.get('/free', { config: { rateLimit: false } }, async () => 'hello')
fastify.get('/hook', { preHandler: fastify.rateLimit({ max: 2, name: 'hook' }) }, async () => 'hello')
fastify.setNotFoundHandler({ preHandler: fastify.rateLimit() }, async () => 'nothing')
// @ts-expect-error a limit is a number
fastify.register(fastifyLimit, { max: '5' })

const koa = new Koa()
const koaLimiter = koaLimit({ max: (ctx) => ctx.path.length, duration: '1m', id: (ctx) => ctx.get('x'), clock })
koa.use(koaLimiter).use(koaLimit({ policy, user: async (ctx) => ctx.get('x') }))
koaLimiter.close()
// @ts-expect-error there is no such option
koaLimit({ maximum: 5 })
// @ts-expect-error a window is a number or text
koaLimit({ duration: new Date() })

const hono = new Hono()
hono.use(honoLimit({ limit: async (c) => c.req.path.length, keyGenerator: (c) => c.req.header('x'), clock }))
hono.use('/api/*', honoLimit({ policy, values: { tenant: (c) => c.req.header('x') } }))
hono.get('/', honoLimit({ limit: 5, handler: (c) => c.text('later', 429) }), (c) => {
  const info: RateLimitInfo | undefined = c.get('rateLimit')
  return c.json(info?.remaining)
})
// @ts-expect-error a key is asked for with a function
honoLimit({ keyGenerator: 'x' })

const error: Error = new SetupError('ERR_TIDEGATE_LIMIT', 'what', 'hint')
console.log(error)
