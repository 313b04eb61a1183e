// As a CommonJS module has them.
import { rateLimit } from 'express-rate-limit'
import { expressStore, fastifyStore, throttlerStorage } from 'tidegate/stores'

export const middleware = rateLimit({ store: expressStore() })
export const storage = throttlerStorage()
export const store = fastifyStore()
