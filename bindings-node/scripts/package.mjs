// Makes the tarballs that are published: the package, and one for each platform whose binary is there.
//
//     node scripts/package.mjs OUT            of what was built here, for tests
//     node scripts/package.mjs OUT --release  of an optimised build for this platform, which it makes first
//
// What is released is linked by zig on Linux, against the oldest C library that can be had: `make package-node` has put zig
// where it is found.
import { execFileSync } from 'node:child_process'
import { copyFileSync, cpSync, existsSync, mkdirSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { fileURLToPath } from 'node:url'

const PACKAGE = fileURLToPath(new URL('..', import.meta.url))
/** That of manylinux2014, as of the Python wheel. */
const GLIBC = '2.17'
const LICENSES = ['LICENSE-MIT', 'LICENSE-APACHE']
const NAPI = path.join(PACKAGE, 'node_modules', '.bin', 'napi')

const [out, how] = process.argv.slice(2)
if (!out || (how !== undefined && how !== '--release')) {
  console.error('write: node scripts/package.mjs OUT [--release]')
  process.exit(2)
}
const target = path.resolve(out)
rmSync(target, { recursive: true, force: true })
const stage = path.join(target, 'stage')
mkdirSync(stage, { recursive: true })
pack(how === '--release' ? build(path.join(target, 'build')) : PACKAGE)
rmSync(stage, { recursive: true })

/** Builds the addon as it is released, and returns the folder that it is in. */
function build(folder) {
  const host = /^host: (.+)$/m.exec(execFileSync('rustc', ['-vV'], { encoding: 'utf8' }))[1]
  const forOldLinux = host.endsWith('-linux-gnu') ? ['--cross-compile', '--target', `${host}.${GLIBC}`] : []
  const options = ['--release', '--strip', ...forOldLinux, '--output-dir', folder]
  run('npm', ['run', '--silent', 'build:native', '--', ...options, '--', '--locked'])
  // The wrapper is compiled against the addon's types.
  for (const name of ['native.js', 'native.d.ts']) copyFileSync(path.join(folder, name), path.join(PACKAGE, name))
  rmSync(path.join(PACKAGE, 'dist'), { recursive: true, force: true })
  run('npm', ['run', '--silent', 'build'])
  return folder
}

function pack(binaries) {
  const manifest = JSON.parse(readFileSync(path.join(PACKAGE, 'package.json'), 'utf8'))
  for (const name of manifest.files) {
    const from = path.join(name.startsWith('native.') ? binaries : PACKAGE, name)
    cpSync(from, path.join(stage, name), { recursive: true, dereference: true })
  }
  write(path.join(stage, 'package.json'), manifest)
  run(NAPI, ['create-npm-dirs', '--npm-dir', 'npm'], stage)
  const platforms = readdirSync(path.join(stage, 'npm')).map((name) => path.join(stage, 'npm', name))
  const made = platforms.filter((folder) => finish(folder, binaries))
  if (made.length === 0) throw new Error(`there is no binary in ${binaries}: npm run build:native makes it`)

  const names = platforms.map((folder) => JSON.parse(readFileSync(path.join(folder, 'package.json'), 'utf8')).name)
  const optionalDependencies = Object.fromEntries(names.sort().map((name) => [name, manifest.version]))
  // What only a clone can use stays there.
  const { scripts: _scripts, devDependencies: _devDependencies, ...published } = manifest
  write(path.join(stage, 'package.json'), { ...published, optionalDependencies })
  for (const folder of [...made, stage]) run('npm', ['pack', '--silent', '--pack-destination', target], folder)
}

/** Puts a platform's binary into its package, if there is one, and the licences. */
function finish(folder, binaries) {
  const file = path.join(folder, 'package.json')
  const manifest = JSON.parse(readFileSync(file, 'utf8'))
  const binary = path.join(binaries, manifest.main)
  if (!existsSync(binary)) return false
  copyFileSync(binary, path.join(folder, manifest.main))
  for (const name of LICENSES) copyFileSync(path.join(PACKAGE, name), path.join(folder, name))
  write(file, { ...manifest, files: [...manifest.files, ...LICENSES] })
  return true
}

function write(file, content) {
  writeFileSync(file, `${JSON.stringify(content, null, 2)}\n`)
}

function run(command, args, cwd = PACKAGE) {
  execFileSync(command, args, { cwd, stdio: ['ignore', 'inherit', 'inherit'] })
}
