// docs/fastify.md, koa.md, hono.md and nest.md, followed: their snippets are programs, and do what the pages say.
import assert from 'node:assert/strict'
import { execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdir, readFile, rm, writeFile } from 'node:fs/promises'
import { createRequire } from 'node:module'
import path from 'node:path'
import { createInterface } from 'node:readline'
import { test } from 'node:test'
import Fastify from 'fastify'
import fastifyLimit from 'tidegate/fastify'
import * as hono from 'tidegate/hono'
import * as koa from 'tidegate/koa'

import { send, sends, statuses } from './support/express.mjs'
import { ROOT } from './support/servers.mjs'

const require = createRequire(import.meta.url)
/** Inside of the package, which finds itself by its name there, and its frameworks. */
const HERE = path.join(ROOT, 'bindings-node', 'tests', 'nest', 'dist', 'docs')
const page = (name) => readFile(path.join(ROOT, 'docs', `${name}.md`), 'utf8')
const snippets = (text, language) =>
  [...text.matchAll(new RegExp(`\`\`\`${language}\n(.*?)\`\`\``, 'gs'))].map(([, code]) => code)

/** Runs a program that tells the ports that it listens on in one line. */
async function run(t, name, files, main) {
  const folder = path.join(HERE, name)
  await mkdir(folder, { recursive: true })
  t.after(() => rm(folder, { recursive: true }))
  for (const [file, text] of Object.entries(files)) await writeFile(path.join(folder, file), text)
  if ('tsconfig.json' in files) {
    const tsc = path.join(path.dirname(require.resolve('typescript/package.json')), 'bin', 'tsc')
    execFileSync(process.execPath, [tsc, '-p', folder], { stdio: 'inherit' })
  }
  const child = spawn(process.execPath, [main], {
    cwd: folder,
    env: { ...process.env, PORT: '0' },
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  t.after(() => child.kill('SIGKILL'))
  const signal = AbortSignal.timeout(60_000)
  const ended = once(child, 'exit', { signal }).then(([code]) => assert.fail(`the program has ended: ${code}`))
  ended.catch(() => {})
  const line = once(createInterface({ input: child.stdout }), 'line', { signal })
  const [ports] = await Promise.race([line, ended])
  return JSON.parse(ports).map((port) => ({ host: '127.0.0.1', port }))
}

const SERVERS = {
  fastify: [
    (text) => text,
    'await shop.listen({ port: 0 })\nconsole.log(JSON.stringify([app, shop].map(({ server }) => server.address().port)))',
  ],
  koa: [
    (text) => text.replace('\napp.listen(', '\nconst server = app.listen('),
    'const other = shop.listen(0, () => console.log(JSON.stringify([server, other].map((one) => one.address().port))))',
  ],
  hono: [
    (text) => text.replace('\nserve({', '\nconst server = serve({'),
    `const other = serve({ fetch: shop.fetch, port: 0 }, () =>
      console.log(JSON.stringify([server, other].map((one) => one.address().port))))`,
  ],
}

for (const [name, [edit, tell]] of Object.entries(SERVERS)) {
  test(`the program of ${name}.md`, async (t) => {
    const program = edit(snippets(await page(name), 'js').join('\n'))
    const [app, shop] = await run(t, name, { 'server.mjs': `${program}\n${tell}\n` }, 'server.mjs')
    const first = name === 'fastify' ? { method: 'POST', path: '/login' } : {}
    const answers = await sends(app, 6, first)
    assert.deepEqual(
      answers.map(({ status }) => status),
      [200, 200, 200, 200, 200, 429],
    )
    assert.equal(answers[0].body, name === 'fastify' ? 'welcome\n' : 'hello, 4 left\n')
    assert.match(answers[5].headers['retry-after'], /^(900|899)$/)

    assert.deepEqual(await statuses(shop, 6, { method: 'POST', path: '/login' }), [200, 200, 200, 200, 200, 429])
    const me = { path: '/api/me', headers: { 'Test-User': 'alice' } }
    const [mine, nobody] = [await send(shop, me), await send(shop, { path: '/api/me' })]
    assert.deepEqual([mine.status, mine.headers['x-ratelimit-remaining'], nobody.status], [200, '99', 403])
    if (name !== 'fastify') return
    assert.equal((await send(app, { path: '/health' })).headers['x-ratelimit-limit'], undefined)
    assert.equal((await send(app)).headers['x-ratelimit-limit'], '100')
    assert.deepEqual(await statuses(shop, 1, { method: 'POST', path: '/sign-in' }), [429])
  })
}

test('the program of nest.md', async (t) => {
  const [module] = snippets(await page('nest'), 'ts')
  const files = {
    'app.module.ts': module,
    'main.ts': `import { NestFactory } from '@nestjs/core'
      import { AppModule } from './app.module.js'
      async function main() {
        const app = await NestFactory.create(AppModule, { logger: false })
        await app.listen(0)
        console.log(JSON.stringify([app.getHttpServer().address().port]))
      }
      void main()`,
    'tsconfig.json': JSON.stringify({
      extends: '../../../tsconfig.json',
      compilerOptions: { rootDir: '.', outDir: 'out' },
      include: ['*.ts'],
    }),
  }
  const [where] = await run(t, 'nest', files, 'out/main.js')
  const answers = await sends(where, 6, { method: 'POST', path: '/login' })
  assert.deepEqual(
    answers.map(({ status }) => status),
    [201, 201, 201, 201, 201, 429],
  )
  assert.match(answers[5].headers['retry-after'], /^(900|899)$/)
  assert.equal((await send(where)).headers['x-ratelimit-limit'], '100')
  assert.equal((await send(where, { path: '/health' })).headers['x-ratelimit-limit'], undefined)
})

/** The names of options in a page's tables under these headings. */
async function named(name, ...headings) {
  const text = await page(name)
  const cells = headings.flatMap((heading) => {
    const part = text.slice(text.indexOf(`## ${heading}`)).split('\n## ')[0]
    return [...part.matchAll(/^\| (`.*?) \|/gm)].map(([, cell]) => cell)
  })
  return cells.flatMap((cell) => [...cell.matchAll(/`(\w+)`/g)].map(([, option]) => option)).sort()
}

/** The options that a limiter knows: it lists them where it knows none that is near. */
function listed(make) {
  try {
    make({ nothingLikeAnyOfThem: 1 })
  } catch ({ hint }) {
    return hint.replace('the options are ', '').split(', ').sort()
  }
  return assert.fail('an option that nobody knows was taken')
}

test('the pages of Koa and Hono name every option, and no other', async () => {
  const policy = { version: 1, rules: { a: '1/s' }, http: { default: { rules: [] } } }
  assert.deepEqual(
    [...(await named('koa', 'Options')), 'disableHeader'].sort(),
    listed((option) => koa.rateLimit(option)),
  )
  assert.deepEqual(
    await named('koa', 'By a document'),
    listed((option) => koa.rateLimit({ policy, ...option })),
  )
  assert.deepEqual(
    await named('hono', 'Options'),
    listed((option) => hono.rateLimit(option)),
  )
  assert.deepEqual(
    await named('hono', 'By a document'),
    listed((option) => hono.rateLimit({ policy, ...option })),
  )
})

test('the page of Fastify names every option, and no other', async () => {
  const known = async (options) => {
    const app = Fastify()
    const error = await app.register(fastifyLimit, options).then(
      () => null,
      (error) => error,
    )
    await app.close()
    return listed(() => {
      throw error
    })
  }
  const options = await named('fastify', 'Options')
  assert.deepEqual([...options, 'skipOnError', 'nameSpace'].sort(), await known({ nothingLikeAnyOfThem: 1 }))
  const policy = { version: 1, rules: { a: '1/s' }, http: { default: { rules: [] } } }
  assert.deepEqual(await named('fastify', 'By a document'), await known({ policy, nothingLikeAnyOfThem: 1 }))
})
