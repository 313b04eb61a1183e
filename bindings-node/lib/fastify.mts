import { rateLimit } from './fastify.js'

export * from './fastify.js'
export default rateLimit
