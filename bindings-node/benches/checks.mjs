// A contestant's part in the cases of bare checks.
import { randomUUID } from 'node:crypto'

import { PEERS } from './peers.mjs'

const KEYS = Array.from({ length: 10_000 }, (_, number) => `user-${String(number).padStart(7, '0')}`)
/** More than a key sees in a run. */
const UNITS = 100_000
const WINDOW_MS = 60_000
const HOUR_MS = 3_600_000

/**
 * Plays rounds of so many checks of keys drawn at random, so many in flight. Every check must pass.
 *
 * @param {string} who
 * @param {string[]} urls
 */
export async function contestant(who, urls) {
  const make = await PEERS[who](urls)
  await prove(make)
  const limiter = await make(UNITS, WINDOW_MS)
  const answers = await Promise.all(KEYS.map((key) => answer(limiter, key)))
  if (answers.includes(false)) throw new Error('a check that should pass is refused')
  return ({ flight, checks }) => measured(checks, drawn(flight, checks), (keys) => checkAll(limiter, keys, true))
}

/** Plays rounds of so many checks of one key that has had its unit, one after the other. Every check must be refused. */
export async function refused(who, urls) {
  const make = await PEERS[who](urls)
  await prove(make)
  const limiter = await make(1, HOUR_MS)
  const key = `hot-${randomUUID()}`
  if (!(await answer(limiter, key))) throw new Error('a key has its unit')
  if (await answer(limiter, key)) throw new Error('a key has one unit')
  return ({ checks }) => measured(checks, [Array(checks).fill(key)], (keys) => checkAll(limiter, keys, false))
}

/** That it decides: of ten checks in an hour, three pass, and they are the first. */
async function prove(make) {
  const limiter = await make(3, HOUR_MS)
  const key = `proof-${randomUUID()}`
  for (let number = 1; number <= 10; number += 1) {
    const allowed = await answer(limiter, key)
    if (allowed !== number <= 3) throw new Error(`of 3 units, check ${number} is ${allowed ? 'allowed' : 'refused'}`)
  }
  limiter.close?.()
}

async function answer(limiter, key) {
  try {
    return limiter.allowed(await limiter.check(key))
  } catch (refusal) {
    if (refusal instanceof Error) throw refusal
    return false
  }
}

/** What one of those in flight does. */
async function checkAll(limiter, keys, expected) {
  for (const key of keys) {
    let allowed = false
    try {
      allowed = limiter.allowed(await limiter.check(key))
    } catch (refusal) {
      if (refusal instanceof Error) throw refusal
    }
    if (allowed !== expected)
      throw new Error(`a check that should ${expected ? 'pass is refused' : 'be refused passes'}`)
  }
}

/** The keys of each of those in flight. */
function drawn(flight, checks) {
  const key = () => KEYS[Math.floor(Math.random() * KEYS.length)]
  return Array.from({ length: flight }, () => Array.from({ length: checks / flight }, key))
}

/** Checks per second, and what one cost this process, all its threads, in nanoseconds. */
export async function measured(count, works, work) {
  const cpu = process.cpuUsage()
  const begun = process.hrtime.bigint()
  await Promise.all(works.map(work))
  const nanoseconds = Number(process.hrtime.bigint() - begun)
  const { user, system } = process.cpuUsage(cpu)
  return { rate: (count * 1e9) / nanoseconds, cpu: ((user + system) * 1_000) / count }
}
