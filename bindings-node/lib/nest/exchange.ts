import type { IncomingHttpHeaders, IncomingMessage, ServerResponse } from 'node:http'

import type { ExecutionContext } from '@nestjs/common'
import type { FastifyReply, FastifyRequest } from 'fastify'

import { pathOf as expressPath } from '../express/path.js'
import { pathOf as fastifyPath } from '../fastify/path.js'
import { fieldsOf as fastifyFields } from '../fastify/rule.js'
import { type Fields, refuse as refuseRaw, setRefusal } from '../http.js'
import type { Admission } from '../index.js'

/** A request as both platforms have it. Functions may say the platform's own type: `(request: FastifyRequest) => ...`. */
export interface PlatformRequest {
  readonly method: string
  readonly url: string
  readonly ip?: string | undefined
  readonly headers: IncomingHttpHeaders
}

/** Something that is worked out for each request; it may come by a promise. */
export type Of<T> = {
  of(request: PlatformRequest, context: ExecutionContext): T | PromiseLike<T>
}['of']

/** A request and its response, of Express or of Fastify. */
export interface Exchange {
  readonly request: PlatformRequest
  readonly response: object
}

function isFastify(request: object): request is FastifyRequest {
  return 'raw' in request && 'server' in request
}

function isReply(response: object): response is FastifyReply {
  return 'raw' in response && 'request' in response
}

/** Node's own request behind it. */
export function rawOf({ request }: Exchange): IncomingMessage {
  return isFastify(request) ? request.raw : (request as unknown as IncomingMessage)
}

/** Node's own response behind it. */
export function rawResponseOf({ response }: Exchange): ServerResponse {
  return isReply(response) ? response.raw : (response as ServerResponse)
}

/** The path as the platform's router takes it. */
export function pathOf({ request }: Exchange): string {
  if (isFastify(request)) return fastifyPath(request)
  const { originalUrl, url } = request as PlatformRequest & { originalUrl?: string }
  return expressPath(originalUrl ?? url)
}

export function fieldsOf({ response }: Exchange): Fields {
  return isReply(response) ? fastifyFields(response) : (response as ServerResponse)
}

/** Answers a refusal as the core has it. */
export function refuse(response: object, admission: Admission): void {
  if (!isReply(response)) return refuseRaw(response as ServerResponse, admission)
  if (response.sent) return
  setRefusal(fastifyFields(response), admission)
  // Bytes, whose type stays as it is.
  void response.code(admission.status ?? 429).send(Buffer.from(admission.body ?? ''))
}
