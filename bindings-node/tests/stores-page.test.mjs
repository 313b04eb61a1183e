// docs/stores-node.md: its blocks run as they stand, on a server of the tests' own.
import 'reflect-metadata'
import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { createServer } from 'node:http'
import path from 'node:path'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { createAdaptorServer } from '@hono/node-server'
import { NestFactory } from '@nestjs/core'
import { own } from './support/servers.mjs'
import { run, snippets } from './support/snippets.mjs'
import { flood, get, listen, statuses } from './support/stores.mjs'

const PACKAGE = fileURLToPath(new URL('../', import.meta.url))
const TSC = path.join(PACKAGE, 'node_modules', '.bin', 'tsc')
const load = (name) => import(name)

/** The block under a heading, on a server that nobody else has. */
async function block(t, heading, language = 'js') {
  const found = snippets('stores-node.md', language).filter((one) => one.heading === heading)
  assert.equal(found.length, 1, heading)
  const { url } = await own(t, 'server')
  const code = found[0].code.replaceAll('redis://127.0.0.1:6379', url)
  assert.notEqual(code, found[0].code)
  return code
}

for (const heading of ['express-rate-limit', 'Counting or deciding']) {
  test(`${heading}: 100 pass`, async (t) => {
    const { app, store } = await run(await block(t, heading), load, ['app', 'store'])
    t.after(() => store.shutdown())
    assert.deepEqual(statuses(await flood(await listen(t, createServer(app)), 120)), { 200: 100, 429: 20 })
  })
}

test('hono-rate-limiter: 100 pass of each key', async (t) => {
  const { app, store } = await run(await block(t, 'hono-rate-limiter'), load, ['app', 'store'])
  t.after(() => store.shutdown())
  const url = await listen(t, createAdaptorServer(app))
  assert.deepEqual(statuses(await flood(url, 120)), { 200: 100, 429: 20 })
  assert.equal((await get(url, { headers: { 'x-api-key': 'alice' } })).status, 200)
})

test('@fastify/rate-limit: 100 pass, and 10 of a group', async (t) => {
  const { app } = await run(await block(t, '@fastify/rate-limit'), load, ['app'])
  t.after(() => app.close())
  const url = await app.listen({ host: '127.0.0.1', port: 0 })
  assert.deepEqual(statuses(await flood(url, 120)), { 200: 100, 429: 20 })
  const group = [...(await flood(`${url}/basket`, 8)), ...(await flood(`${url}/order`, 8))]
  assert.deepEqual(statuses(group), { 200: 10, 429: 6 })
})

test('@nestjs/throttler: compiles in strict mode, and 100 pass', async (t) => {
  const folder = await mkdtemp(path.join(PACKAGE, 'tests', '.page-'))
  t.after(() => rm(folder, { recursive: true }))
  await writeFile(path.join(folder, 'app.ts'), await block(t, '@nestjs/throttler', 'ts'))
  const options = ['--ignoreConfig', '--strict', '--experimentalDecorators', '--skipLibCheck', '--types', 'node']
  await promisify(execFile)(TSC, [...options, '--target', 'es2022', '--module', 'node16', 'app.ts'], {
    cwd: folder,
  })
  const { AppModule } = await import(path.join(folder, 'app.js'))
  const { Controller, Get, Module } = await import('@nestjs/common')
  class Hello {
    hello() {
      return 'Hello'
    }
  }
  Get()(Hello.prototype, 'hello', Object.getOwnPropertyDescriptor(Hello.prototype, 'hello'))
  Controller()(Hello)
  class Whole {}
  Module({ imports: [AppModule], controllers: [Hello] })(Whole)
  const app = await NestFactory.create(Whole, { logger: false })
  t.after(() => app.close())
  await app.listen(0, '127.0.0.1')
  assert.deepEqual(statuses(await flood(await app.getUrl(), 120)), { 200: 100, 429: 20 })
})

test("a limiter of the application's: each store counts by itself", async (t) => {
  const { limiter, api, login } = await run(await block(t, 'Where state lives'), load, ['limiter', 'api', 'login'])
  t.after(() => limiter.close())
  await limiter.ready(60_000)
  for (const store of [api, login]) {
    store.init({ windowMs: 60_000 })
    assert.equal((await store.increment('alice')).totalHits, 1)
  }
})
