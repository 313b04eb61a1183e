// Node processes of their own: how they end is what is tested.
import { spawn } from 'node:child_process'
import { fileURLToPath } from 'node:url'

/** The package. */
export const PACKAGE = fileURLToPath(new URL('../../', import.meta.url))
/** After this long a process is killed, which no test expects. Machines are busy. */
const PATIENCE_MS = 90_000

/**
 * Starts a command; with standard input, output and errors of its own.
 *
 * @returns the process; `ended`, which resolves when it has; and `line()`, its next line of output
 */
export function begin(command, args, { cwd = PACKAGE, env = {}, timeoutMs = PATIENCE_MS } = {}) {
  const child = spawn(command, args, { cwd, env: { ...process.env, ...env } })
  const told = { out: '', err: '', code: null, signal: null, late: false }
  const late = setTimeout(() => {
    told.late = true
    child.kill('SIGKILL')
  }, timeoutMs)
  const listeners = new Set()
  const tell = () => listeners.forEach((listener) => listener())
  child.stdin.on('error', () => {})
  child.stdout.setEncoding('utf8').on('data', (text) => {
    told.out += text
    tell()
  })
  child.stderr.setEncoding('utf8').on('data', (text) => (told.err += text))
  const ended = new Promise((resolve, reject) => {
    child.on('error', reject)
    child.on('close', (code, signal) => {
      clearTimeout(late)
      resolve(Object.assign(told, { code, signal }))
      tell()
    })
  })
  let read = 0
  const line = () =>
    new Promise((resolve, reject) => {
      const look = () => {
        const end = told.out.indexOf('\n', read)
        if (end >= 0) resolve(told.out.slice(read, end))
        else if (child.exitCode !== null || child.signalCode !== null) reject(new Error(`it ended: ${told.err}`))
        else return
        if (end >= 0) read = end + 1
        listeners.delete(look)
      }
      listeners.add(look)
      look()
    })
  return { child, ended, line }
}

/**
 * Starts an ES module given as text, which has `given` as the constant of this name. What the core logs would come to its
 * errors as Node's warnings: there are none, so that errors are errors.
 */
export function beginNode(source, given = {}, { flags = [], env = {}, ...options } = {}) {
  const text = `const given = ${JSON.stringify(given)}\n${source}`
  return begin(process.execPath, [...flags, '--input-type=module', '--eval', text], {
    ...options,
    env: { NODE_NO_WARNINGS: '1', ...env },
  })
}

/** Runs such a module to its end: `{ code, signal, late, out, err }`. */
export function runNode(source, given, options) {
  return beginNode(source, given, options).ended
}

/** Runs a command to its end, which must be a good one, and returns its output. */
export async function run(command, args, options) {
  const { code, signal, out, err } = await begin(command, args, options).ended
  if (code !== 0) throw new Error(`${command} ${args.join(' ')} ended with ${code ?? signal}:\n${out}${err}`)
  return out
}

/** How a process ended, for comparisons: an error of its own tells what it said. */
export function end({ code, signal, late, err }) {
  return late ? { late, err } : { code, signal, err }
}

/** What must be known within a bound, however busy the machine is. */
export async function within(ms, promise) {
  let timer
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`nothing came of it within ${ms} ms`)), ms)
  })
  try {
    return await Promise.race([promise, late])
  } finally {
    clearTimeout(timer)
  }
}
