// What users of tidegate/express write, as the compiler sees it.
import express from 'express'
import { Policy, type Admission } from 'tidegate'
import {
  admissionOf,
  ipKeyGenerator,
  rateLimit,
  SetupError,
  type RateLimitInfo,
  type RateLimitOptions,
  type RateLimiter,
  type RoutesLimiter,
} from 'tidegate/express'
import { FakeClock } from 'tidegate/testing'

const app = express()

const plain: RateLimiter = rateLimit()
app.use(plain)
app.post('/login', rateLimit({ windowMs: 60_000, limit: 5 }), (req, res) => {
  const info: RateLimitInfo | undefined = req.rateLimit
  const reset: Date | undefined = info?.resetTime
  const admission: Admission | undefined = admissionOf(req)
  res.json([reset, admission?.outcome, info?.toJSON().used])
})

const options: RateLimitOptions = {
  windowMs: '15m',
  limit: async (req) => (req.query['plan'] === 'pro' ? 100 : 10),
  algorithm: 'token_bucket',
  cost: (req) => Number(req.query['files']),
  keyGenerator: (req) => req.get('Api-Key') ?? ipKeyGenerator(req.ip ?? ''),
  skip: (req) => req.path === '/health',
  handler: (req, res, next, { statusCode, name }) => (req.ip ? res.status(statusCode).send(name) : next()),
  message: (req, res) => ({ error: `later, ${req.path}`, status: res.statusCode }),
  standardHeaders: 'draft-8',
  requestWasSuccessful: (req, res) => res.statusCode < 500,
  onError: 'local',
  clock: new FakeClock(),
  validate: { trustProxy: false, positiveHits: true },
  logger: console,
}
const limiter: RateLimiter = rateLimit(options)
const hits: Promise<{ totalHits: number; resetTime: Date | undefined } | undefined> = limiter.getKey('a')
const done: Promise<void> = limiter.resetKey('a')
limiter.close()

const policy = new Policy('limits.toml')
const routes: RoutesLimiter = rateLimit({
  policy,
  route: 'login',
  user: (req) => req.get('User'),
  values: { tenant: async () => 7n },
  answers: { is_staff: () => true },
})
// @ts-expect-error a document says what its keys are
routes.resetKey('a')
// @ts-expect-error it is no option
rateLimit({ windosMs: 1 })
// @ts-expect-error it is a number, or a function of one
rateLimit({ limit: '5' })
// @ts-expect-error there is no such algorithm
rateLimit({ algorithm: 'leaky_bucket' })
// @ts-expect-error a store of express-rate-limit's is not taken
rateLimit({ store: {} })
// @ts-expect-error only yes and no are answers
rateLimit({ policy, answers: { is_staff: () => 'yes' } })

try {
  rateLimit({ policy: 'limits.toml' })
} catch (error) {
  if (error instanceof SetupError) console.log(error.code, error.hint)
}
export { done, hits }
