// docs/express.md, followed: its snippets are one program in a folder of their own, and do what the page says.
import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { mkdir, mkdtemp, readFile, rm, symlink, writeFile } from 'node:fs/promises'
import os from 'node:os'
import path from 'node:path'
import { createInterface } from 'node:readline'
import { once } from 'node:events'
import { test } from 'node:test'
import * as checks from 'tidegate/express'
import { ROOT } from './support/servers.mjs'
import { send, statuses, VERSIONS } from './support/express.mjs'

const PACKAGE = path.join(ROOT, 'bindings-node')
const page = (name) => readFile(path.join(ROOT, 'docs', name), 'utf8')
const snippets = (text) => [...text.matchAll(/```js\n(.*?)```/gs)].map(([, code]) => code)

/** A folder in which the packages are found, as after an installation. */
async function shop(t, express) {
  const folder = await mkdtemp(path.join(os.tmpdir(), 'tidegate-'))
  t.after(() => rm(folder, { recursive: true }))
  await mkdir(path.join(folder, 'node_modules'))
  await symlink(PACKAGE, path.join(folder, 'node_modules', 'tidegate'))
  await symlink(path.join(PACKAGE, 'node_modules', express), path.join(folder, 'node_modules', 'express'))
  return folder
}

/** Runs a program that listens on `PORT`, and tells where. */
async function run(t, folder, program) {
  const tell = `\nserver.once('listening', () => console.log(server.address().port))\n`
  await writeFile(path.join(folder, 'server.js'), program + tell)
  const { REDIS_URL: _, ...rest } = process.env
  const env = { ...rest, PORT: '0' }
  const child = spawn(process.execPath, ['server.js'], { cwd: folder, env, stdio: ['ignore', 'pipe', 'inherit'] })
  t.after(() => child.kill('SIGKILL'))
  const signal = AbortSignal.timeout(60_000)
  const ended = once(child, 'exit', { signal }).then(([code]) => assert.fail(`the program has ended: ${code}`))
  ended.catch(() => {})
  const [port] = await Promise.race([once(createInterface({ input: child.stdout }), 'line', { signal }), ended])
  return { host: '127.0.0.1', port: Number(port) }
}

function post(where, path, body, headers = {}) {
  const url = `http://${where.host}:${where.port}${path}`
  return fetch(url, { method: 'POST', body: new URLSearchParams(body), headers, signal: AbortSignal.timeout(60_000) })
}

async function posts(times, ...args) {
  const answers = []
  for (let sent = 0; sent < times; sent++) answers.push(await post(...args))
  return answers
}

for (const [version, name] of [
  ['Express 4', 'express4'],
  ['Express 5', 'express'],
]) {
  test(`the page’s program, with ${version}`, async (t) => {
    assert.ok(version in VERSIONS)
    const text = await page('express.md')
    const where = await run(t, await shop(t, name), snippets(text).join('\n'))

    const logins = await posts(6, where, '/login', { name: 'alice' })
    assert.deepEqual(
      logins.map(({ status }) => status),
      [200, 200, 200, 200, 200, 429],
    )
    assert.equal(await logins[0].text(), 'welcome, alice\n')
    // What the page shows, but for the moment.
    const [, shown] = /The sixth gets\n\n```\n(.*?)```/s.exec(text)
    const [head, body] = shown.trim().split('\n\n')
    for (const line of head.split('\n').slice(1)) {
      const [field, value] = line.split(': ')
      if (field === 'X-RateLimit-Reset') continue
      const found = logins[5].headers.get(field)
      assert.equal(found === '899' ? '900' : found, value, field)
    }
    assert.equal((await logins[5].text()).replace(/\d+ seconds/, '900 seconds'), body)

    // A limiter that two routes have counts for both.
    assert.equal((await post(where, '/sign-in', { name: 'bob', password: 'right' })).status, 429)

    const files = (count, headers) => post(where, `/upload?files=${count}`, {}, headers)
    assert.equal((await files(9, { 'Api-Key': 'a' })).status, 200)
    const refused = await files(2, { 'Api-Key': 'a' })
    const { error, at } = await refused.json()
    assert.deepEqual([refused.status, error, Date.parse(at) > Date.now()], [429, 'later', true])
    assert.equal((await (await files(2, { 'Api-Key': 'a', Plan: 'pro' })).json()).limit, 100)

    for (const count of ['', '0', '-1', 'many', '1e9', '1&files=2'])
      assert.equal((await files(count, { 'Api-Key': `of ${count}` })).status, 200, count)

    const search = await send(where, { path: '/search' })
    assert.deepEqual([search.body, search.headers['ratelimit']], ['search', '"search";r=9;t=60'])
    assert.deepEqual(await statuses(where, 1, { path: '/items/1' }), [403])
    const [item] = [await send(where, { path: '/items/1', headers: { 'Test-User': 'alice' } })]
    assert.deepEqual([item.status, item.headers['x-ratelimit-limit']], [200, '100'])
    const root = await send(where, { path: '/items/1', headers: { 'Test-User': 'root' } })
    assert.deepEqual([root.status, root.headers['x-ratelimit-limit']], [200, undefined])

    assert.deepEqual(await statuses(where, 2, { path: '/daily' }), [200, 429])
    await post(where, '/tomorrow', {})
    assert.deepEqual(await statuses(where, 1, { path: '/daily' }), [200])
  })
}

test('the page’s login by name', async (t) => {
  const [first, second] = snippets(await page('express.md'))
  const program = `${first}\n${second}`.replace('limit: 5,', 'limit: 1000,')
  const where = await run(t, await shop(t, 'express'), program)
  const right = await posts(25, where, '/sign-in', { name: 'bob', password: 'right' })
  assert.ok(right.every(({ status }) => status === 200))
  const guesses = await posts(21, where, '/sign-in', { name: 'bob', password: 'guess' })
  assert.deepEqual([guesses[19].status, guesses[20].status], [401, 429])
  assert.equal((await post(where, '/sign-in', 'name=eve&name=mallory')).status, 401)
  assert.deepEqual(await statuses(where, 1, { method: 'POST', path: '/sign-in' }), [401])
})

test('the page from express-rate-limit runs', async (t) => {
  const [first] = snippets(await page('migrating-express-rate-limit.md'))
  const where = await run(t, await shop(t, 'express'), `${first}\nconst server = app.listen(process.env.PORT)`)
  const answer = await send(where)
  assert.deepEqual([answer.status, answer.headers['ratelimit']], [404, '"100-in-15min";r=99;t=900'])
})

test('the page names every option and every check, and no other', async () => {
  const text = await page('express.md')
  const rows = (heading) =>
    text
      .slice(text.indexOf(`## ${heading}`))
      .split('\n## ')[0]
      .matchAll(/^\| (`.*?) \|/gm)
  const named = (heading) =>
    [...rows(heading)].flatMap(([, cell]) => [...cell.matchAll(/`(\w+)`/g)].map(([, name]) => name))
  const aliases = ['max', 'headers', 'identifier', 'passOnStoreError']
  const options = await listed(() => checks.rateLimit({ nothingLikeIt: 1 }))
  assert.deepEqual([...new Set([...named('Options'), ...aliases])].sort(), options)
  const ofRoutes = await listed(() => checks.rateLimit({ policy: 'none.toml', nothingLikeIt: 1 }))
  assert.deepEqual(named('By a document').sort(), ofRoutes)
  const known = []
  checks.rateLimit({
    validate: { nothing: true },
    logger: { error: ({ hint }) => known.push(...names(hint)), warn() {} },
  })
  assert.deepEqual(named('Checks').sort(), known.sort())
})

/** The options that an error lists. */
async function listed(make) {
  try {
    make()
  } catch (error) {
    return names(error.hint).sort()
  }
  throw new Error('there was no error')
}

function names(hint) {
  return hint.replace(/^.*?(are|write one of) /, '').split(', ')
}
