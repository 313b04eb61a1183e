// What the tests of stores for other packages' limiters share: the places where state lives, and sockets.
import assert from 'node:assert/strict'
import { once } from 'node:events'
import { createServer } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { prefix, shared } from './servers.mjs'

/** How long anything here may take before the test fails: generous, on a busy machine too. */
export const PATIENCE_MS = 20_000

/** Memory, a server and a cluster, each with the options of a store of its own there. */
export async function places() {
  const [server, cluster] = await Promise.all([shared('server'), shared('cluster')])
  return [
    { name: 'memory', options: () => ({ prefix: prefix() }) },
    { name: 'server', options: () => ({ url: server.url, prefix: prefix(), deadline: '10s' }) },
    { name: 'cluster', options: () => ({ url: cluster.url, prefix: prefix(), deadline: '10s' }) },
  ]
}

/** Serves requests on a socket of its own until the test ends; returns the address. */
export async function listen(t, server) {
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  t.after(async () => {
    server.closeAllConnections()
    await new Promise((resolve) => server.close(resolve))
  })
  return `http://127.0.0.1:${server.address().port}`
}

/** The URL of a server that is not there. */
export async function nobody() {
  const server = createServer().listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address()
  await new Promise((resolve) => server.close(resolve))
  return `redis://127.0.0.1:${port}`
}

/** One request, whose body is read to its end. */
export async function get(url, init = {}) {
  const response = await fetch(url, { ...init, signal: AbortSignal.timeout(PATIENCE_MS) })
  return { status: response.status, headers: response.headers, body: await response.text() }
}

/** So many requests at once. */
export function flood(url, requests) {
  return Promise.all(Array.from({ length: requests }, () => get(url)))
}

/** Of these answers, how many had each status. */
export function statuses(answers) {
  const found = {}
  for (const { status } of answers) found[status] = (found[status] ?? 0) + 1
  return found
}

/** The numbers in a header of those that passed, in order. */
export function numbers(answers, header) {
  return answers
    .filter(({ status }) => status === 200)
    .map(({ headers }) => Number(headers.get(header)))
    .sort((a, b) => a - b)
}

/** 0, 1, 2, ... */
export function upTo(end) {
  return Array.from({ length: end }, (_, index) => index)
}

/** Asks again until it is so. */
export async function until(what, message) {
  const end = Date.now() + PATIENCE_MS
  for (;;) {
    const found = await what()
    if (found) return found
    assert.ok(Date.now() < end, `${message}: not within ${PATIENCE_MS} ms`)
    await sleep(5)
  }
}

/** Holds whoever waits until it is opened. */
export function gate() {
  let open
  const opened = new Promise((resolve) => (open = resolve))
  return { opened, open }
}

/** Milliseconds that something took. */
export async function timed(what) {
  const start = performance.now()
  const found = await what()
  return [found, performance.now() - start]
}
