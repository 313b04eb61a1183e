// What the tarballs contain, and that they work where nothing else is. TIDEGATE_PACKAGES is the folder of those that are
// published, which `make package-node` makes and looks at; without it, they are made of what the tests run on.
import assert from 'node:assert/strict'
import { readFileSync, readdirSync, statSync } from 'node:fs'
import { cp, mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { isBuiltin } from 'node:module'
import os from 'node:os'
import path from 'node:path'
import test, { after, before } from 'node:test'

import { PACKAGE, end, run, runNode } from './support/processes.mjs'

const RELEASED = process.env.TIDEGATE_PACKAGES
/** The oldest C library that a released binary runs on: that of manylinux2014. */
const GLIBC = [2, 17]
/** More than this would be a mistake: symbols that were not taken out, or a second copy of something. */
const MOST_BYTES = 8 * 1024 * 1024
/** What must be there already where these are used, for they are its parts. */
const NEEDS = { nest: ['@nestjs/common'] }

const manifest = JSON.parse(readFileSync(path.join(PACKAGE, 'package.json'), 'utf8'))
const subpaths = Object.keys(manifest.exports).filter((name) => name !== './package.json')

let folder
let tarballs
let installed

before(async () => {
  folder = await mkdtemp(path.join(os.tmpdir(), 'tidegate-'))
  const made = RELEASED ?? path.join(folder, 'made')
  if (!RELEASED) await run(process.execPath, ['scripts/package.mjs', made])
  tarballs = readdirSync(made)
    .filter((name) => name.endsWith('.tgz'))
    .map((name) => path.join(made, name))
  installed = await install('installed', tarballs)
})
after(() => rm(folder, { recursive: true }))

/** An empty project that has these, and a cache that has nothing. */
async function install(name, packages) {
  const project = path.join(folder, name)
  await mkdir(project)
  await writeFile(path.join(project, 'package.json'), JSON.stringify({ name, private: true }))
  const env = { npm_config_cache: path.join(folder, `${name}-cache`) }
  const options = ['--offline', '--no-audit', '--no-fund', '--no-package-lock']
  await run('npm', ['install', ...options, ...packages], { cwd: project, env })
  return project
}

const at = (...names) => path.join(installed, 'node_modules', ...names)
const platform = () => readdirSync(at()).filter((name) => name.startsWith('tidegate-'))
const told = (name) => JSON.parse(readFileSync(at(name, 'package.json'), 'utf8'))

/** Every file below a folder. */
function files(root, below = '') {
  return readdirSync(path.join(root, below), { withFileTypes: true }).flatMap((entry) => {
    const name = path.join(below, entry.name)
    return entry.isDirectory() ? files(root, name) : [name]
  })
}

test('there is the package, and one for this platform', () => {
  const { os: systems, cpu, libc, main, license, version } = told(...platform())
  assert.equal(tarballs.length, 2)
  assert.deepEqual([systems, cpu], [[process.platform], [process.arch]])
  assert.equal(libc?.length ?? 0, process.platform === 'linux' ? 1 : 0)
  assert.deepEqual([version, license], [manifest.version, 'MIT OR Apache-2.0'])
  assert.deepEqual(
    files(at(...platform())).sort(),
    ['LICENSE-APACHE', 'LICENSE-MIT', 'README.md', 'package.json', main].sort(),
  )
})

test('the package has what its exports name, with their types, and nothing of its making', () => {
  const there = files(at('tidegate'))
  for (const subpath of subpaths) {
    for (const file of Object.values(manifest.exports[subpath])) {
      const types = file.replace(/js$/, 'ts').replace(/\.(m?)ts$/, '.d.$1ts')
      for (const needed of [file, types]) assert.ok(there.includes(path.normalize(needed)), needed)
    }
  }
  const others = there.filter((name) => !name.startsWith('dist'))
  const expected = ['LICENSE-APACHE', 'LICENSE-MIT', 'README.md', 'native.d.ts', 'native.js', 'package.json']
  assert.deepEqual(others.sort(), expected)
  assert.deepEqual(
    there.filter((name) => !/\.(d\.)?m?[jt]s$|\.json$|^LICENSE|^README/.test(name)),
    [],
  )
})

test('it asks for no other package but the binaries, each of its own version, and installs by no script', () => {
  const { scripts = {}, dependencies = {}, devDependencies, optionalDependencies, engines } = told('tidegate')
  assert.deepEqual([scripts, dependencies, devDependencies], [{}, {}, undefined])
  assert.equal(engines.node, '>=18')
  assert.equal(Object.keys(optionalDependencies).length, manifest.napi.targets.length)
  assert.ok(Object.keys(optionalDependencies).includes(...platform()))
  assert.deepEqual(new Set(Object.values(optionalDependencies)), new Set([manifest.version]))
  assert.deepEqual(Object.keys(manifest.dependencies ?? {}), [])
})

test('the frameworks that it is loaded beside are peers, none of which must be there', () => {
  const { peerDependencies, peerDependenciesMeta } = told('tidegate')
  const outside = /(?:from |require\()['"]((?:@[\w-]+\/)?[\w-]+)['"]/g
  const named = files(at('tidegate', 'dist'))
    .flatMap((name) => [...readFileSync(at('tidegate', 'dist', name), 'utf8').matchAll(outside)])
    .map(([, name]) => name)
  const asked = [...new Set(named)].filter((name) => !isBuiltin(name) && name !== 'tidegate').sort()
  assert.deepEqual(Object.keys(peerDependencies), asked)
  assert.deepEqual(peerDependenciesMeta, Object.fromEntries(asked.map((name) => [name, { optional: true }])))
})

test('every subpath can be imported and required, and is one whoever loads it', async () => {
  const alone = subpaths.map((name) => path.posix.join('tidegate', name)).filter((name) => !NEEDS[path.basename(name)])
  assert.ok(alone.length > 5)
  const source = `
    import assert from 'node:assert'
    import { createRequire } from 'node:module'
    import path from 'node:path'
    const require = createRequire(path.join(process.cwd(), 'x.js'))
    for (const name of given.alone) {
      const imported = await import(name)
      const required = require(name)
      const names = Object.keys(required).filter((name) => !name.startsWith('__'))
      assert.ok(names.length > 0, name)
      for (const one of names) assert.equal(imported[one], required[one], name + ' ' + one)
    }
    const { Limiter } = await import('tidegate')
    const limiter = new Limiter({ rules: { a: '1/m' } })
    const decisions = [await limiter.check('a', 'x'), limiter.checkSync('a', 'x')]
    console.log(decisions.map(({ allowed }) => allowed).join(), require.resolve('tidegate'))`
  const ended = await runNode(source, { alone }, { cwd: installed })
  const out = `true,false ${at('tidegate', 'dist', 'index.js')}\n`
  assert.deepEqual({ ...end(ended), out: ended.out }, { code: 0, signal: null, err: '', out })
})

test('importing starts nothing: no thread, no socket, no timer, no file', async () => {
  const source = `
    import { readdirSync } from 'node:fs'
    const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms))
    const seen = async () => {
      await sleep(100)
      const held = process.getActiveResourcesInfo().filter((name) => name !== 'Timeout').sort()
      const names = ['task', 'fd'].map((what) => readdirSync('/proc/self/' + what).length)
      return JSON.stringify([names, held, process.listenerCount('exit'), process.listenerCount('warning')])
    }
    await (await import('node:fs/promises')).stat('.') // its threads for files are there from now on
    const before = await seen()
    for (const name of given.all) await import(name)
    const after = await seen()
    console.log(before === after ? 'nothing' : before + ' and then ' + after)`
  const all = subpaths.map((name) => path.posix.join('tidegate', name)).filter((name) => !NEEDS[path.basename(name)])
  const ended = await runNode(source, { all }, { cwd: installed })
  assert.deepEqual({ ...end(ended), out: ended.out }, { code: 0, signal: null, err: '', out: 'nothing\n' })
})

test('without the binary it says what was tried, and what to do', async () => {
  const project = path.join(folder, 'without')
  await cp(path.join(installed, 'node_modules', 'tidegate'), path.join(project, 'node_modules', 'tidegate'), {
    recursive: true,
  })
  const source = `
    const error = await import('tidegate').catch((error) => error)
    console.log(JSON.stringify([error.code, error.message, error.cause instanceof Error]))`
  const [code, message, hasCause] = JSON.parse((await runNode(source, {}, { cwd: project })).out)
  assert.equal(code, 'ERR_TIDEGATE_ADDON')
  assert.equal(hasCause, true)
  for (const part of [
    `${process.platform}-${process.arch}`,
    process.version,
    platform()[0],
    '--include=optional',
    'Rust',
  ]) {
    assert.ok(message.includes(part), `${part}: ${message}`)
  }
  if (process.platform === 'linux') assert.match(message, /glibc [\d.]+|musl/)
  const wrong = { env: { NAPI_RS_NATIVE_LIBRARY_PATH: '/no/such.node' }, cwd: project }
  assert.match(JSON.parse((await runNode(source, {}, wrong)).out)[1], /\/no\/such\.node/)
})

test('a binary for another platform says why it does not load', async () => {
  const project = path.join(folder, 'broken')
  await cp(path.join(installed, 'node_modules'), path.join(project, 'node_modules'), { recursive: true })
  const [name] = platform()
  await writeFile(path.join(project, 'node_modules', name, told(name).main), 'not a binary')
  const source = `console.log((await import('tidegate').catch((error) => error)).message)`
  const { out } = await runNode(source, {}, { cwd: project })
  assert.match(out, /invalid ELF header|too short|not a valid|mach-o/i)
})

const binary = () => at(platform()[0], told(platform()[0]).main)
const isLinux = process.platform === 'linux'
const readelf = async (what) => run('readelf', ['--wide', what, binary()])

test('it links the system alone', { skip: !isLinux }, async () => {
  const needed = [...(await readelf('--dynamic')).matchAll(/\(NEEDED\).*\[(.+)\]/g)].map(([, name]) => name)
  assert.ok(needed.length > 0)
  const system = /^(lib(c|m|dl|pthread|rt|gcc_s)\.so\.\d|ld-linux-.*)$/
  assert.deepEqual(
    needed.filter((name) => !system.test(name)),
    [],
  )
})

test('a released binary asks for no newer C library than it says, and is small', { skip: !isLinux }, async () => {
  const asked = [...(await readelf('--version-info')).matchAll(/GLIBC_(\d+)\.(\d+)/g)].map(([, ...pair]) =>
    pair.map(Number),
  )
  assert.ok(asked.length > 0)
  if (!RELEASED) return
  const newer = asked.filter(([major, minor]) => major > GLIBC[0] || minor > GLIBC[1])
  assert.deepEqual(newer, [])
  assert.ok(statSync(binary()).size < MOST_BYTES, `${statSync(binary()).size} bytes`)
  assert.doesNotMatch(await readelf('--sections'), /\.symtab|\.debug_/)
})

test('a released binary has no clock for servers', async () => {
  const source = `
    import { createRequire } from 'node:module'
    import path from 'node:path'
    const native = createRequire(import.meta.url)(path.join(process.cwd(), 'node_modules/tidegate/native.js'))
    console.log(native.TESTING, native.VERSION)`
  const { out } = await runNode(source, {}, { cwd: installed })
  assert.equal(out, `${!RELEASED} ${manifest.version}\n`)
})
