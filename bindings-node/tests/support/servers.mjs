// Real servers, started by the workspace's own harness (tests/src/bin/servers.rs). They end with this process at the
// latest. Beside tests of its own, a file says what it needs so:
//
//     const redis = await shared('server')          // for all tests of the file: a prefix of your own, and leave it alone
//     test('...', async (t) => {
//       const hurt = await own(t, 'cluster')         // for this test, which may hurt it
import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { connect } from 'node:net'
import path from 'node:path'
import { createInterface } from 'node:readline'
import { after } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'

/** The repository. */
export const ROOT = fileURLToPath(new URL('../../../', import.meta.url))
const HARNESS = process.env.TIDEGATE_TEST_SERVERS ?? path.join(ROOT, 'target', 'debug', 'servers')
/** A cluster is six processes that must find each other; a resumed one, and a busy machine, take their time. */
const PATIENCE_MS = 60_000

// It would come before every URL that a test gives.
delete process.env.TIDEGATE_URL

/** A client of the Rust core in a process of its own: tests/src/bin/hammer.rs. */
export const HAMMER = path.join(path.dirname(HARNESS), 'hammer')

/** A server (`'server'`), or a cluster of six (`'cluster'`). */
class Servers {
  #child
  #lines
  #waiting = []
  #gone = false

  constructor(kind) {
    this.#child = spawn(HARNESS, [kind], { stdio: ['pipe', 'pipe', 'inherit'] })
    this.#lines = createInterface({ input: this.#child.stdout })
    this.#lines.on('line', (line) => this.#waiting.shift()?.resolve(line))
    const lost = (error) => {
      this.#gone = true
      for (const { reject } of this.#waiting.splice(0)) reject(error)
    }
    this.#child.on('error', (cause) => lost(new Error(`${HARNESS} does not run: cargo build builds it`, { cause })))
    this.#child.on('close', (code) => lost(new Error(`the servers are gone: ${code}`)))
    this.#child.stdin.on('error', () => {})
  }

  async begin() {
    this.url = await this.#line()
    return this
  }

  /**
   * Pauses, resumes, kills, restarts or flushes it (all masters of a cluster), or counts its eternal keys.
   *
   * @param {'pause' | 'resume' | 'kill' | 'restart' | 'flush' | 'eternal'} what
   */
  async do(what) {
    this.#child.stdin.write(`${what}\n`)
    return this.#line()
  }

  /** Every key must have a TTL, and the servers must end. They must run; `hurt` is of those that do not any more. */
  async end({ hurt = false } = {}) {
    const eternal = hurt ? '0' : await this.do('eternal')
    this.#hold(true)
    const closed = once(this.#child, 'close', { signal: AbortSignal.timeout(PATIENCE_MS) })
    this.#child.stdin.end()
    const [code] = await closed
    assert.equal(eternal, '0', 'every key has a TTL')
    assert.equal(code, 0)
  }

  async #line() {
    if (this.#gone) throw new Error('the servers are gone')
    this.#hold(true)
    const done = new AbortController()
    try {
      const line = new Promise((resolve, reject) => this.#waiting.push({ resolve, reject }))
      const late = sleep(PATIENCE_MS, undefined, { signal: done.signal }).then(() => {
        throw new Error(`the servers said nothing for ${PATIENCE_MS} ms`)
      })
      return await Promise.race([line, late])
    } finally {
      done.abort()
      this.#hold(false)
    }
  }

  /** Only while it is waited for does a server keep this process: a test file ends when its tests have. */
  #hold(on) {
    for (const one of [this.#child, this.#child.stdin, this.#child.stdout]) on ? one.ref() : one.unref()
  }
}

/** Servers that the caller ends with `end()`. @param {'server' | 'cluster'} kind */
export function start(kind) {
  return new Servers(kind).begin()
}

/** Servers for all tests of the file, which calls it at its top. @param {'server' | 'cluster'} kind */
export async function shared(kind) {
  const servers = await start(kind)
  after(() => servers.end())
  return servers
}

/** Servers that a test may hurt. It says `hurt: true` if it leaves them so that they cannot be asked any more. */
export async function own(t, kind, options) {
  const servers = await start(kind)
  t.after(() => servers.end(options))
  return servers
}

/** Kills one master of a cluster, without a word to its replica. */
export async function killOneMaster(url) {
  for (const [port] of url.matchAll(/(?<=:)\d+/g)) {
    if ((await asked(port, 'ROLE')).includes('master')) return asked(port, 'SHUTDOWN NOSAVE NOW FORCE')
  }
  assert.fail('there is no master')
}

/** What a server answers to one command, as far as that comes at once; nothing if it ends. */
export async function asked(port, command) {
  const socket = connect(Number(port), '127.0.0.1')
  socket.write(`${command}\r\n`)
  const [answer] = await Promise.race([once(socket, 'data'), once(socket, 'close')])
  socket.destroy()
  return String(answer)
}

let prefixes = 0

/** A prefix that no other test has. */
export function prefix() {
  prefixes += 1
  return `node${process.pid}-${prefixes}`
}
