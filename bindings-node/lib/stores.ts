/**
 * Stores for other packages' limiters: express-rate-limit, hono-rate-limiter, `@nestjs/throttler`, `@fastify/rate-limit`.
 *
 * The host keeps its options, headers and answers; where its counts live, and that they are exact, is Tidegate's.
 *
 * @module
 */

export { expressStore, ExpressStore } from './stores/express.js'
export type { ExpressHits, ExpressInit, ExpressStoreOptions } from './stores/express.js'
export { fastifyStore } from './stores/fastify.js'
export type {
  FastifyCallback,
  FastifyRoute,
  FastifyStore,
  FastifyStoreClass,
  FastifyStoreOptions,
} from './stores/fastify.js'
export { throttlerStorage, TidegateThrottlerStorage } from './stores/throttler.js'
export type { ThrottlerRecord, ThrottlerStorageOptions } from './stores/throttler.js'
export type { OwnSource, SharedSource, SourceOptions } from './stores/source.js'
export type { Algorithm } from './index.js'
