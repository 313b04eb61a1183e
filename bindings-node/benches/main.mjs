// Checks through the addon on real servers, beside the peers. `CASES` names the cases to run, `ROUNDS` how many rounds.
//
// The client runs on one core and the servers on the other, so that neither waits for the other's turn.
import { execFile } from 'node:child_process'
import { promisify } from 'node:util'

import { BARE, CONTESTANTS } from './express.mjs'
import { OURS } from './peers.mjs'
import { Report } from './report.mjs'
import { median, play, ratio, ROUNDS, withContestants } from './rounds.mjs'
import { onServerCore, pinClient, withServers } from './servers.mjs'

const CHECKS_PEERS = [
  'ioredis EVALSHA',
  'ioredis EVALSHA, auto-pipelining',
  'rate-limiter-flexible',
  'rate-limiter-flexible, auto-pipelining',
  'rate-limit-redis on ioredis',
  'rate-limit-redis on ioredis, auto-pipelining',
]
const CLUSTER_PEERS = CHECKS_PEERS.filter((peer) => !peer.startsWith('rate-limit-redis'))

/** @type {Record<string, (report: Report, urls: string[]) => Promise<void>>} */
const ON_A_SERVER = {
  'node-1': checks('node-1', { flight: 1, checks: 3_000, bar: 0.8 }),
  'node-16': checks('node-16', { flight: 16, checks: 16_000, bar: 0.8 }),
  'node-256': checks('node-256', { flight: 256, checks: 256 * 128, bar: 1.5 }),
  'node-1024': checks('node-1024', { flight: 1_024, checks: 1_024 * 40, bar: 2 }),
  'denied-hot': deniedHot,
  'express-cpu': expressCpu,
  'express-wrk': expressUnderWrk,
}
const ON_A_CLUSTER = {
  'cluster-1024': checks('cluster-1024', {
    flight: 1_024,
    checks: 1_024 * 40,
    bar: 1.8,
    peers: CLUSTER_PEERS,
    shown: [],
  }),
}

async function main() {
  const everyCase = [...Object.keys(ON_A_SERVER), ...Object.keys(ON_A_CLUSTER)]
  const wanted = process.env.CASES?.split(' ').filter(Boolean) ?? []
  for (const name of wanted) {
    if (!everyCase.includes(name)) throw new Error(`there is no case ${name}; write some of ${everyCase.join(' ')}`)
  }
  pinClient()
  const report = new Report()
  for (const [kind, cases] of /** @type {const} */ ([
    ['server', ON_A_SERVER],
    ['cluster', ON_A_CLUSTER],
  ])) {
    const now = Object.keys(cases).filter((name) => wanted.length === 0 || wanted.includes(name))
    if (now.length === 0) continue
    await withServers(kind, async (urls) => {
      for (const name of now) await cases[name](report, urls)
    })
  }
  process.exitCode = report.finish()
}

/** Checks per second with so many in flight. */
function checks(name, { flight, checks, bar, peers = CHECKS_PEERS, shown = ['node-redis EVALSHA'] }) {
  return (report, urls) =>
    withContestants('checks', [OURS, ...peers, ...shown], urls, async (contestants) => {
      compare(report, name, bar, await play(contestants, { round: { flight, checks } }), peers)
    })
}

/** A key that has had its unit, asked for again and again by one who waits for each answer. */
function deniedHot(report, urls) {
  const peer = 'rate-limiter-flexible, blocking in memory'
  return withContestants('denied', [OURS, peer], urls, async (contestants) => {
    compare(report, 'denied-hot', 1.5, await play(contestants, { round: { checks: 100_000 } }), [peer])
  })
}

/** The best of the peers, by their medians, is our peer. Who is no peer is only shown. */
function compare(report, name, bar, played, peers) {
  const unit = 'checks/s'
  const rates = (who) => played.get(who).map((told) => told.rate)
  for (const [who, told] of played) {
    const cpu = median(told.map((round) => round.cpu))
    report.show({ case: name, who, figure: median(rates(who)), unit, cpu, ratio: ratio(rates(OURS), rates(who)) })
  }
  const best = peers.reduce((one, other) => (median(rates(other)) > median(rates(one)) ? other : one))
  const [ours, peer] = [median(rates(OURS)), median(rates(best))]
  report.add({ case: name, ours, peer, peerName: best, unit, ratio: ratio(rates(OURS), rates(best)), bar })
}

/** So many processes of each contestant follow each other: two of the same differ for as long as they live. */
const LIVES = 3

/**
 * What a middleware adds to the processor time of a request, in the client's process with all its threads: its time less
 * that of the same application with a middleware that does nothing. Judged with 16 requests at once, as a server has them
 * that is neither idle nor overrun; alone and with 64 it is shown.
 */
async function expressCpu(report, urls) {
  const rounds = Math.ceil(ROUNDS / LIVES)
  const added = new Map()
  for (let life = 1; life <= LIVES; life += 1) {
    await withContestants('express', CONTESTANTS, urls, async (contestants) => {
      const judged = await play(contestants, { round: { flight: 16, requests: 64 * 300 }, rounds, warmUp: 5 })
      for (const [who, figures] of addedNanoseconds(judged)) added.set(who, [...(added.get(who) ?? []), ...figures])
      if (life < LIVES) return
      showAdded(report, 'express-cpu', added)
      for (const flight of [1, 64]) {
        const played = await play(contestants, { round: { flight, requests: 64 * 100 }, warmUp: 1 })
        showAdded(report, `express-cpu at ${flight}`, addedNanoseconds(played))
      }
    })
  }
  const peers = [...added.keys()].filter((who) => who.startsWith('express-rate-limit'))
  const best = peers.reduce((one, other) => (median(added.get(other)) < median(added.get(one)) ? other : one))
  const [ours, theirs] = [added.get(OURS), added.get(best)]
  const line = { ours: median(ours), peer: median(theirs), peerName: best, unit: 'ns', bar: 0.8, atMost: true }
  report.add({ case: 'express-cpu', ...line, ratio: ratio(ours, theirs) })
}

function showAdded(report, name, added) {
  const ours = added.get(OURS)
  for (const [who, figures] of added)
    report.show({ case: name, who, figure: median(figures), unit: 'ns', ratio: ratio(ours, figures) })
}

/** Each round's processor time per request, less what the bare application took in that round. */
function addedNanoseconds(played) {
  const bare = played.get(BARE).map((told) => told.cpu)
  const contestants = [...played].filter(([who]) => who !== BARE)
  return new Map(contestants.map(([who, told]) => [who, told.map((round, number) => round.cpu - bare[number])]))
}

/** Requests per second of a server on the client's core, with wrk on the servers'. Shown, not judged. */
async function expressUnderWrk(report, urls) {
  const run = promisify(execFile)
  if (
    await run('wrk', ['-v']).then(
      () => false,
      (error) => error.code === 'ENOENT',
    )
  ) {
    console.error('wrk is not here, so Express under wrk is not shown')
    return
  }
  await withContestants('serve', CONTESTANTS, urls, async (contestants) => {
    const served = new Map()
    for (const [who, contestant] of contestants) {
      const port = await contestant.play({})
      const [command, ...args] = onServerCore(['wrk', '-t1', '-c16', '-d2s', `http://127.0.0.1:${port}/orders`])
      served.set(who, { play: async () => requests(await run(command, args, { timeout: 60_000 })) })
    }
    const played = await play(served, { rounds: Math.min(ROUNDS, 3), warmUp: 1 })
    for (const [who, figures] of played) {
      const unit = 'requests/s'
      report.show({ case: 'express-wrk', who, figure: median(figures), unit, ratio: ratio(played.get(OURS), figures) })
    }
  })
}

function requests({ stdout }) {
  const rate = /Requests\/sec:\s+([\d.]+)/.exec(stdout)
  if (!rate || stdout.includes('Non-2xx')) throw new Error(`not all that wrk asked for was answered:\n${stdout}`)
  return Number(rate[1])
}

await main()
