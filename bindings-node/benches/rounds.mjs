// Rounds in which ours and the peers take turns; the round in the middle counts.
//
// Each contestant has a process of its own, which lives as long as its case: code that another has warmed up, garbage that
// another has left and what another's threads use of the processor are then no part of its figures. They all run on the
// client's core, one at a time; who is not playing waits for its turn without a timer of its own.
import { fork } from 'node:child_process'
import { fileURLToPath } from 'node:url'

const CONTESTANT = fileURLToPath(new URL('contestant.mjs', import.meta.url))
/** Odd, so that one is in the middle. */
export const ROUNDS = Number(process.env.ROUNDS ?? 9)
/** What a contestant may take to start, or for a round. */
const PATIENCE_MS = 120_000

/** A contestant's process. */
class Contestant {
  /** @type {import('node:child_process').ChildProcess} */
  #process
  /** @type {Promise<unknown>} */
  ready

  constructor(who, kind, urls) {
    const env = { ...process.env, NODE_ENV: 'production' }
    this.#process = fork(CONTESTANT, [who, kind, JSON.stringify(urls)], { env })
    this.ready = this.#answer()
  }

  /** Plays a round, and gives what it tells of it. */
  async play(round) {
    const answer = this.#answer()
    this.#process.send(round)
    return answer
  }

  end() {
    this.#process.removeAllListeners()
    this.#process.kill()
  }

  #answer() {
    return new Promise((resolve, reject) => {
      const late = setTimeout(() => settle(reject, new Error('a contestant does not answer')), PATIENCE_MS)
      const settle = (how, what) => {
        clearTimeout(late)
        this.#process.off('message', told).off('exit', gone)
        how(what)
      }
      const told = ({ done, failed }) => (failed ? settle(reject, new Error(failed)) : settle(resolve, done))
      const gone = (code, signal) => settle(reject, new Error(`a contestant ended: ${code ?? signal}`))
      this.#process.on('message', told).on('exit', gone)
    })
  }
}

/**
 * The processes of some contestants, as long as `use` runs.
 *
 * @template T
 * @param {string} kind what they do: see contestant.mjs
 * @param {string[]} whos
 * @param {string[]} urls
 * @param {(contestants: Map<string, Contestant>) => Promise<T>} use
 */
export async function withContestants(kind, whos, urls, use) {
  const contestants = new Map()
  try {
    for (const who of whos) {
      contestants.set(who, new Contestant(who, kind, urls))
      await contestants.get(who).ready
    }
    return await use(contestants)
  } finally {
    for (const contestant of contestants.values()) contestant.end()
  }
}

/**
 * What each tells of its rounds, after some that warm it up. Every other round goes the other way round.
 *
 * @param {Map<string, Contestant>} contestants
 * @param {{ round: unknown, rounds?: number, warmUp?: number }} how
 * @returns {Promise<Map<string, any[]>>}
 */
export async function play(contestants, { round, rounds = ROUNDS, warmUp = 2 }) {
  const everyone = [...contestants]
  const played = new Map(everyone.map(([who]) => [who, []]))
  for (let number = -warmUp; number < rounds; number += 1) {
    for (const [who, contestant] of number % 2 ? everyone : everyone.toReversed()) {
      const told = await contestant.play(round)
      if (number >= 0) played.get(who).push(told)
    }
  }
  return played
}

/** @param {number[]} figures */
export function median(figures) {
  const sorted = figures.toSorted((one, other) => one - other)
  const middle = sorted.length >> 1
  return sorted.length % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2
}

/** The median of each round's quotient. @param {number[]} ours @param {number[]} theirs */
export function ratio(ours, theirs) {
  return median(ours.map((figure, round) => figure / theirs[round]))
}
