// What the tests of Express share: both versions, sockets, and a client that says exactly what it is told to.
import { once } from 'node:events'
import http from 'node:http'
import express5 from 'express'
import express4 from 'express4'

/** The versions that are supported, by their names. */
export const VERSIONS = { 'Express 4': express4, 'Express 5': express5 }
/** How long a request may take before its test fails, on a busy machine too. */
const PATIENCE_MS = 20_000

/** Serves an application on a socket of its own until the test ends; returns where. `path` is for a Unix socket. */
export async function serve(t, app, path) {
  const server = http.createServer(app)
  if (path === undefined) server.listen(0, '127.0.0.1')
  else server.listen(path)
  await once(server, 'listening')
  t.after(async () => {
    server.closeAllConnections()
    await new Promise((resolve) => server.close(resolve))
  })
  return path === undefined ? { host: '127.0.0.1', port: server.address().port } : { socketPath: path }
}

/** One request on a connection of its own: `{ status, headers, rawHeaders, body }`. */
export function send(where, { method = 'GET', path = '/', headers = {}, agent = false } = {}) {
  return new Promise((resolve, reject) => {
    const signal = AbortSignal.timeout(PATIENCE_MS)
    const request = http.request({ ...where, method, path, headers, agent, signal }, (response) => {
      const chunks = []
      response.on('data', (chunk) => chunks.push(chunk))
      response.on('error', reject)
      response.on('end', () => {
        const { statusCode: status, headers, rawHeaders } = response
        resolve({ status, headers, rawHeaders, body: Buffer.concat(chunks).toString() })
      })
    })
    request.on('error', reject)
    request.end()
  })
}

/** So many requests, one after the other. */
export async function sends(where, times, options) {
  const answers = []
  for (let sent = 0; sent < times; sent++) answers.push(await send(where, options))
  return answers
}

/** The statuses of so many requests, one after the other. */
export async function statuses(where, times, options) {
  return (await sends(where, times, options)).map(({ status }) => status)
}

/** A logger that keeps the codes it is told, in order. */
export function keeper() {
  const codes = []
  const tell = (error) => codes.push(error.code ?? String(error))
  return { codes, error: tell, warn: tell }
}

/** An application that trusts one proxy, so that X-Forwarded-For chooses the client, with one limiter. */
export function trusting(express, limiter, answer = (request, response) => response.send('ok')) {
  const app = express().set('trust proxy', 1)
  app.use(limiter)
  app.all('/other', (request, response) => response.status(404).send('none'))
  app.use(answer)
  return app.use(errors)
}

/** Hears of errors as an application does, and answers with what they say. */
export function errors(error, request, response, next) {
  response.status(500).send(`${error.code ?? error.name}: ${error.message}`)
}

/** Asks again until it is so. */
export async function until(what) {
  const end = Date.now() + PATIENCE_MS
  for (;;) {
    const found = await what()
    if (found) return found
    if (Date.now() > end) throw new Error(`not within ${PATIENCE_MS} ms: ${what}`)
    await new Promise((resolve) => setTimeout(resolve, 5))
  }
}
