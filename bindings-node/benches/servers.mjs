// Servers of this run alone, on a core of their own: the tests' harness (tests/src/bin/servers.rs) starts them.
import { execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import { createInterface } from 'node:readline'

import { Redis } from 'ioredis'

const HARNESS = process.env.TIDEGATE_TEST_SERVERS
const CLIENT_CORE = '0'
const SERVER_CORE = '1'
/** The six processes of a cluster must find each other. */
const PATIENCE_MS = 60_000

/** A command that runs on the servers' core. @param {string[]} command */
export function onServerCore(command) {
  return ['taskset', '--cpu-list', SERVER_CORE, ...command]
}

/** Keeps this process, and all that it starts, on the client's core. */
export function pinClient() {
  try {
    execFileSync('taskset', ['--all-tasks', '--pid', '--cpu-list', CLIENT_CORE, String(process.pid)], { stdio: 'pipe' })
    execFileSync('taskset', ['--cpu-list', SERVER_CORE, 'true'], { stdio: 'pipe' })
  } catch (cause) {
    throw new Error('the benchmarks need taskset (of util-linux), and cores 0 and 1 for client and servers', { cause })
  }
}

/**
 * An empty server, or three masters, as long as `use` runs.
 *
 * @param {'server' | 'cluster'} kind
 * @param {(urls: string[]) => Promise<void>} use is given the URL of each
 */
export async function withServers(kind, use) {
  if (!HARNESS) throw new Error('TIDEGATE_TEST_SERVERS must name the binary `servers`; `make bench-node` does')
  const [command, ...args] = onServerCore([HARNESS, kind])
  const harness = spawn(command, args, { stdio: ['pipe', 'pipe', 'inherit'] })
  const ended = once(harness, 'close')
  try {
    const lines = createInterface({ input: harness.stdout })
    const begun = once(lines, 'line', { signal: AbortSignal.timeout(PATIENCE_MS) })
    const lost = ended.then(() => Promise.reject(new Error('the servers do not start')))
    const [url] = await Promise.race([begun, lost])
    await use(kind === 'cluster' ? await mastersAlone(url) : [url])
  } finally {
    // It ends what it started when its input ends.
    harness.stdin.end()
    await ended.catch(() => {})
  }
}

/**
 * Ends the replicas, which have machines of their own elsewhere, and here would share the masters' core. The masters
 * forget them, so that no client looks for them.
 *
 * @param {string} url `redis+cluster://host:port,host:port,...`
 */
async function mastersAlone(url) {
  const nodes = await Promise.all(
    url
      .replace('redis+cluster://', '')
      .split(',')
      .map(async (node) => {
        const client = new Redis(`redis://${node}`, { retryStrategy: null })
        // A replica that is told to end closes its connection instead of answering.
        client.on('error', () => {})
        const [[role], id] = await Promise.all([client.role(), client.cluster('MYID')])
        return { url: `redis://${node}`, client, id, master: role === 'master' }
      }),
  )
  const masters = nodes.filter((node) => node.master)
  for (const replica of nodes.filter((node) => !node.master)) {
    await replica.client.call('SHUTDOWN', 'NOSAVE').catch(() => {})
    for (const master of masters) await master.client.cluster('FORGET', replica.id)
  }
  for (const { client } of nodes) client.disconnect()
  return masters.map((master) => master.url)
}
