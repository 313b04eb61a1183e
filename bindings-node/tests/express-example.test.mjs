// examples/express_app as its own processes, two of them on one Redis.
import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, readFile, rm, symlink } from 'node:fs/promises'
import os from 'node:os'
import path from 'node:path'
import { createInterface } from 'node:readline'
import { test } from 'node:test'
import { own, ROOT } from './support/servers.mjs'

const EXAMPLE = path.join(ROOT, 'examples', 'express_app')
const PACKAGE = path.join(ROOT, 'bindings-node')

/** Starts the example where its two packages are found, without an installation. */
async function start(t, modules, url) {
  const NODE_PATH = [modules, path.join(PACKAGE, 'node_modules')].join(path.delimiter)
  const env = { ...process.env, NODE_PATH, PORT: '0', TIDEGATE_URL: url }
  const child = spawn(process.execPath, [path.join(EXAMPLE, 'server.js')], {
    env,
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  t.after(() => child.kill('SIGKILL'))
  const [line] = await once(createInterface({ input: child.stdout }), 'line', { signal: AbortSignal.timeout(60_000) })
  return { child, url: `http://${/127\.0\.0\.1:\d+/.exec(line)[0]}` }
}

const post = (url, body, headers = {}) =>
  fetch(url, { method: 'POST', body, headers, signal: AbortSignal.timeout(60_000) })

test('two processes of the shop limit together', async (t) => {
  const redis = await own(t, 'server')
  const modules = await mkdtemp(path.join(os.tmpdir(), 'tidegate-'))
  t.after(() => rm(modules, { recursive: true }))
  await symlink(PACKAGE, path.join(modules, 'tidegate'))
  const shops = [await start(t, modules, redis.url), await start(t, modules, redis.url)]

  const login = (shop, password) => post(`${shop.url}/login`, new URLSearchParams({ name: 'alice', password }))
  const welcome = await login(shops[0], 'alice')
  assert.deepEqual([welcome.status, await welcome.json()], [200, { user: 'alice' }])
  const Cookie = welcome.headers.get('set-cookie').split(';')[0]

  // Guesses of both processes are 5 a minute with the right one; the minute is not over before they are all sent.
  const guesses = await Promise.all(Array.from({ length: 20 }, (_, number) => login(shops[number % 2], 'guess')))
  const statuses = guesses.map(({ status }) => status)
  assert.deepEqual(
    [statuses.filter((status) => status === 401).length, statuses.filter((status) => status === 429).length],
    [4, 16],
  )

  const begin = performance.now()
  const uploads = await Promise.all(
    Array.from({ length: 40 }, (_, number) => post(`${shops[number % 2].url}/upload`, 'bytes', { Cookie })),
  )
  const windows = Math.ceil((performance.now() - begin) / 1_000)
  const passed = uploads.filter(({ status }) => status === 200)
  assert.ok(passed.length >= 5 && passed.length <= 5 * windows, `${passed.length} in ${windows} s`)
  assert.deepEqual(await passed[0].json(), {
    received: 5,
    remaining: Number(passed[0].headers.get('x-ratelimit-remaining')),
  })
  assert.ok(uploads.every(({ status }) => status === 200 || status === 429))

  // Nobody, and somebody who has signed for himself.
  assert.equal((await post(`${shops[0].url}/upload`, 'bytes')).status, 403)
  const forged = await post(`${shops[0].url}/upload`, 'bytes', { Cookie: `session=bob.${Cookie.split('.')[1]}` })
  assert.equal(forged.status, 403)

  for (const { child } of shops) {
    child.kill('SIGTERM')
    const [code] = await once(child, 'exit', { signal: AbortSignal.timeout(60_000) })
    assert.equal(code, 0)
  }
})

test('it is the document of the Django example', async () => {
  const [one, other] = ['express_app', 'django_app'].map((name) => path.join(ROOT, 'examples', name, 'tidegate.toml'))
  assert.equal(await readFile(one, 'utf8'), await readFile(other, 'utf8'))
})
