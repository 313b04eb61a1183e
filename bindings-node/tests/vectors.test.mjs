// The vectors that every store and language answers alike (tests/vectors/README.md), through the addon.
import assert from 'node:assert/strict'
import test from 'node:test'
import { isDeepStrictEqual } from 'node:util'

import { Limiter, TidegateError } from 'tidegate'
import { Clock, TESTING } from '../dist/native.js'
import { prefix, shared } from './support/servers.mjs'
import { cases, differences, part } from './support/vectors.mjs'

const HISTORIES = [
  'sliding_window_log',
  'sliding_window',
  'token_bucket',
  'sliding_window_counter',
  'fixed_window',
  'several_limits',
  'request_ids',
  'refunds',
  'clock_steps',
  'changes',
  'stored_values',
  'counts',
]
// What looks at Redis or plants something there is the Rust tests' business.
const UNTOLD = new Set(['set', 'persist'])

const stores = { memory: undefined, redis: await shared('server'), cluster: await shared('cluster') }

test('the addon under test takes a clock for servers', () => {
  assert.equal(TESTING, true, 'make test-node builds the addon with the feature "testing"')
})

for (const [store, servers] of Object.entries(stores)) {
  for (const name of HISTORIES) {
    test(`${name} on ${store}`, async () => {
      const told = cases(name).filter(({ steps }) => !steps.some(({ op }) => UNTOLD.has(op)))
      for (const history of told) await play(history, servers?.url)
      assert.ok(told.length > 5)
    })
  }
}

async function play(history, url) {
  const scene = new Scene(history, url)
  try {
    for (const [number, step] of history.steps.entries()) {
      const found = await scene.play(step)
      const missing = step.op === 'state' ? [] : differences(step.expect ?? {}, found)
      assert.deepEqual(missing, [], `${history.name}, step ${number} ${JSON.stringify(step)}`)
    }
  } finally {
    scene.limiter.close()
  }
}

/** A history on a limiter of its own. Each op of its steps is a method. */
class Scene {
  constructor({ start, rules, steps }, url) {
    this.start = start
    this.url = url
    this.rules = { ...rules }
    this.madeWith = { ...rules }
    // A new limiter in memory would begin empty. So that one has the rules as they are in the end, and is given those of
    // the moment at the call.
    if (url === undefined) for (const step of steps) Object.assign(this.madeWith, step.rules)
    this.clock = new Clock(start, true)
    this.prefix = prefix()
    this.receipts = {}
    this.limiter = this.made()
  }

  made() {
    const store = { prefix: this.prefix, deadline: '20s', ...(this.url && { url: this.url }) }
    const document = JSON.stringify({ version: 1, store, rules: this.madeWith })
    return new Limiter({ document, format: 'json', clock: this.clock })
  }

  async play(step) {
    this.clock.micros = this.start + step.at
    try {
      return await this[`do_${step.op}`](step)
    } catch (error) {
      if (!(error instanceof TidegateError)) throw error
      return { error: error.code }
    }
  }

  options({ limits, rule, cost, id }) {
    const isAnother = typeof rule === 'string' && this.madeWith[rule] !== this.rules[rule]
    const given = limits ?? (isAnother ? this.rules[rule] : undefined)
    return {
      ...(given !== undefined && { limits: given }),
      ...(cost !== undefined && { cost: Number(cost) }),
      ...(id !== undefined && { requestId: part(id) }),
    }
  }

  async do_check(step) {
    let admitted = 0
    let decision
    for (let number = 0; number < (step.times ?? 1); number += 1) {
      if (number > 0) this.clock.micros += step.every_us ?? 0
      decision = await this.limiter.check(step.rule, step.key, this.options(step))
      admitted += decision.allowed ? 1 : 0
    }
    if (step.save) this.receipts[step.save] = decision.receipt
    return { ...told(decision), admitted }
  }

  async do_peek(step) {
    return told(await this.limiter.peek(step.rule, step.key, this.options(step)))
  }

  async do_count({ rule, key, n, window_us, start_us }) {
    const window = window_us / 1000
    const counted =
      n >= 0
        ? await this.limiter.count(rule, key, window, n)
        : await this.limiter.takeBack(rule, key, window, -n, this.start + start_us)
    const start = counted.start === 0 ? 0 : Math.ceil((counted.start - this.start) / 1000)
    return { total: counted.total, time_left_us: Math.ceil(counted.leftMs), start_us: start }
  }

  async do_refund({ receipt }) {
    return { refunded: await this.limiter.refund(this.receipts[receipt]) }
  }

  async do_reset(step) {
    const { limits } = this.options(step)
    await this.limiter.reset(step.rule, step.key, limits === undefined ? {} : { limits })
    return {}
  }

  async do_rules(step) {
    Object.assign(this.rules, step.rules)
    if (this.url !== undefined) {
      this.madeWith = { ...this.rules }
      this.limiter.close()
      this.limiter = this.made()
    }
    return {}
  }

  async do_state() {
    return {}
  }
}

/** A decision as the files have it. */
function told(decision) {
  const figures = ({ allowed, remaining, retryAfterMs, resetAfterMs }) => ({
    allowed,
    remaining,
    retry_after_us: retryAfterMs,
    reset_after_us: resetAfterMs,
  })
  const { repeat, origin, binding, limits, failure } = decision
  return {
    ...figures(decision),
    repeat,
    origin,
    failure: failure?.code ?? null,
    binding: limits.findIndex((limit) => isDeepStrictEqual(limit, binding)),
    limits: limits.map(figures),
  }
}

test('rules mean what they mean everywhere', async () => {
  for (const { name, rule, expect } of cases('rules')) {
    const found = await whatItMeans({ document: JSON.stringify({ version: 1, rules: { r: rule } }), format: 'json' })
    const { error, limits } = expect
    assert.deepEqual(differences(error ? { error } : { limits }, found), [], name)
  }
})

async function whatItMeans(options) {
  try {
    const limiter = new Limiter(options)
    const { limits } = await limiter.peek('r', 'x')
    const enforce = ({ enforced, windowMs, precisionMs, algorithm, limit, burst, name }) => ({
      ...{ algorithm, limit, burst, name },
      window_ms: windowMs,
      precision_ms: precisionMs,
      enforce: enforced,
    })
    return { limits: limits.map(enforce) }
  } catch (error) {
    return { error: error.code }
  }
}

test('documents are judged as everywhere', async () => {
  for (const { name, text, format, expect } of cases('documents')) {
    const found = await codeOf(() => new Limiter({ document: text, format }).rules)
    if (expect.error) assert.equal(found, expect.error, name)
    else if (Object.keys(expect.rules).length > 0)
      assert.deepEqual([...found].sort(), Object.keys(expect.rules).sort(), name)
  }
})

test('keys are told apart and refused as everywhere', async () => {
  for (const { name, prefix, key_secret, rule_name, rule, key, expect } of cases('keys')) {
    const told = typeof key === 'object' && 'parts' in key ? key.parts.map(part) : part(key)
    const document = JSON.stringify({ version: 1, store: { prefix, key_secret }, rules: { [rule_name]: rule } })
    const found = await codeOf(async () => {
      await new Limiter({ document, format: 'json' }).check(rule_name, told)
    })
    assert.equal(found, expect.error, name)
  }
})

async function codeOf(work) {
  try {
    return await work()
  } catch (error) {
    assert.ok(error instanceof TidegateError, String(error))
    return error.code
  }
}
