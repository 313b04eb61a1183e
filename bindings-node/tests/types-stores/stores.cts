// As a CommonJS module has them.
import { rateLimit } from 'express-rate-limit'
import { expressStore, fastifyStore, throttlerStorage } from 'tidegate/stores'

// What may be missing in an environment may be given as it is.
const url = process.env['REDIS_URL']
export const middleware = rateLimit({ store: expressStore({ url, limit: undefined, algorithm: undefined }) })
export const storage = throttlerStorage({ url, onError: undefined })
export const store = fastifyStore({ url })
