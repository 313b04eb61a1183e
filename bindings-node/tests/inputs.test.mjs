// What calls are given: what is the same, what is refused, and that a refusal says what to write instead.
import assert from 'node:assert/strict'
import test from 'node:test'

import { Limiter, Policy, TidegateError, setLogger } from 'tidegate'
import { FakeClock } from 'tidegate/testing'
import { end, runNode } from './support/processes.mjs'
import { own, prefix, shared } from './support/servers.mjs'

const redis = await shared('server')
const stores = { memory: undefined, redis: redis.url }
const RULES = { a: '5/m', b: '10/m', jobs: '5/m sliding_window_log' }
const limiterOf = (url) => new Limiter({ rules: RULES, ...(url && { url }), prefix: prefix(), deadline: '20s' })
const limiter = limiterOf()

/** An error of Tidegate's, whose message is a sentence that says more than that something is wrong. */
function isRefused(code, hint) {
  return (error) => {
    assert.ok(error instanceof TidegateError, `${error?.stack ?? error}`)
    assert.ok(error instanceof Error)
    assert.equal(error.code, code, error.message)
    assert.match(error.message, hint)
    assert.equal(error.name, 'TidegateError')
    return true
  }
}

for (const [store, url] of Object.entries(stores)) {
  test(`text is its UTF-8, whoever gives it: ${store}`, async () => {
    const ours = limiterOf(url)
    const texts = ['jürgen 😀', 'x\0y', '\uffff', 'a'.repeat(300), 'é'.repeat(4_000)]
    for (const text of texts) {
      assert.equal((await ours.check('a', text)).remaining, 4)
      for (const bytes of [Buffer.from(text), new TextEncoder().encode(text)]) {
        assert.equal((await ours.peek('a', bytes)).remaining, 4, text)
      }
    }
    const whole = Buffer.from('--middle--')
    await ours.check('a', 'middle')
    assert.equal((await ours.peek('a', whole.subarray(2, 8))).remaining, 4, 'of a view, what it shows')
  })

  test(`a key of parts is another than its text: ${store}`, async () => {
    const ours = limiterOf(url)
    await ours.check('a', ['tenant', 'alice'])
    assert.equal((await ours.peek('a', ['tenant', Buffer.from('alice')])).remaining, 4)
    for (const other of ['tenantalice', 'tenant:alice', ['tenanta', 'lice'], ['tenant', 'alice', ''], ['alice']]) {
      assert.equal((await ours.peek('a', other).catch(() => ({ remaining: 5 }))).remaining, 5, String(other))
    }
  })

  test(`a Buffer that is changed after the call is what it was: ${store}`, async () => {
    const ours = limiterOf(url)
    const key = Buffer.from('alice')
    const call = ours.check('a', key)
    key.write('mally')
    assert.equal((await call).remaining, 4)
    assert.deepEqual([(await ours.peek('a', 'alice')).remaining, (await ours.peek('a', 'mally')).remaining], [4, 5])
  })

  test(`request ids are text and bytes: ${store}`, async () => {
    const ours = limiterOf(url)
    assert.equal((await ours.check('jobs', 'x', { requestId: 'job 17' })).repeat, false)
    assert.equal((await ours.check('jobs', 'x', { requestId: Buffer.from('job 17') })).repeat, true)
    assert.equal((await ours.peek('jobs', 'x')).remaining, 4)
  })
}

const LONE = ['\ud800', 'a\udfff', '\udc00\ud800', 'x'.repeat(400) + '\ud83d']
const lone = (call) => LONE.map((text) => [`a lone surrogate in ${JSON.stringify(text.slice(-9))}`, () => call(text)])

/** Calls that cannot be meant: each has a code, and what must be in its message. */
const REFUSED = {
  invalid_request: [
    [/surrogate|Unicode|UTF-8/i, lone((text) => limiter.check('a', text))],
    [/surrogate|Unicode|UTF-8/i, lone((text) => limiter.check('a', ['x', text]))],
    [/surrogate|Unicode|UTF-8/i, lone((text) => limiter.acquire('a', text))],
    [/surrogate|Unicode|UTF-8/i, lone((text) => limiter.check('jobs', 'x', { requestId: text }))],
    [
      /key/i,
      [
        ['', () => limiter.check('a', '')],
        ['undefined', () => limiter.check('a', undefined)],
        ['null', () => limiter.check('a', null)],
        ['no key', () => limiter.check('a')],
        ['a number', () => limiter.check('a', 17)],
        ['an object', () => limiter.check('a', { id: 17 })],
        ['an array of numbers', () => limiter.check('a', ['x', 17])],
        ['an array with a hole', () => limiter.check('a', ['x', undefined])],
        ['an empty array', () => limiter.check('a', [])],
        ['a promise', () => limiter.check('a', Promise.resolve('x'))],
        ['a symbol', () => limiter.check('a', Symbol('x'))],
        ['a function', () => limiter.check('a', () => 'x')],
        ['a boxed text', () => limiter.check('a', new String('x'))],
        ['an ArrayBuffer', () => limiter.check('a', new ArrayBuffer(3))],
        ['wider numbers', () => limiter.check('a', new Uint16Array(3))],
        ['of peek', () => limiter.peek('a', 17)],
        ['of acquire', () => limiter.acquire('a', 17)],
        ['of reset', () => limiter.reset('a', 17)],
        ['of count', () => limiter.count('a', 17, '1m')],
        ['of checkAll', () => limiter.checkAll(['a', 'b'], 17)],
      ],
    ],
    [
      /cost|whole number|units/i,
      [0, -1, 1.5, NaN, Infinity, '1', 2 ** 53, null, {}, 10n].map((cost) => [
        `cost ${String(cost)}`,
        () => limiter.check('a', 'x', { cost }),
      ]),
    ],
    [
      /cost|whole number|units/i,
      [0, '1', null].map((cost) => [`of acquire, ${cost}`, () => limiter.acquire('a', 'x', { cost })]),
    ],
    [
      /10s|milliseconds|duration|time|deadline/i,
      [0, -1, NaN, Infinity, 0.5, 'soon', '', {}, null].map((deadline) => [
        `deadline ${String(deadline)}`,
        () => limiter.check('a', 'x', { deadline }),
      ]),
    ],
    [
      /10s|milliseconds|duration|time/i,
      ['soon', -1, NaN, {}].map((timeout) => [
        `timeout ${String(timeout)}`,
        () => limiter.acquire('a', 'x', { timeout }),
      ]),
    ],
    [
      /10s|milliseconds|duration|time|window/i,
      [0, -1, NaN, 'soon', undefined, null].map((window) => [
        `window ${String(window)}`,
        () => limiter.count('a', 'x', window),
      ]),
    ],
    [/whole|count|units/i, [-1, 1.5, NaN, '2'].map((add) => [`add ${add}`, () => limiter.count('a', 'x', '1m', add)])],
    [/signal/i, [['a signal', () => limiter.acquire('a', 'x', { signal: 'stop' })]]],
    [
      /rule|limits/i,
      [[], 17, undefined, null, [17]].map((rule) => [`rule ${JSON.stringify(rule)}`, () => limiter.check(rule, 'x')]),
    ],
    [
      /limits/i,
      ['check', 'peek', 'acquire', 'reset', 'log'].map((name) => [
        `limits of ${name}`,
        () => limiter[name]('jobs', 'x', { limits: 17 }),
      ]),
    ],
    [
      /cost is no option here; there are limits/,
      ['reset', 'log'].map((name) => [`an option of ${name}`, () => limiter[name]('jobs', 'x', { cost: 1 })]),
    ],
    [
      /no option here|an object/,
      [
        ['an option that is not known', () => limiter.check('jobs', 'x', { requestID: 'a' })],
        ['one of peek', () => limiter.peek('jobs', 'x', { costs: 2 })],
        ['one of acquire', () => limiter.acquire('jobs', 'x', { requestId: 'a' })],
        ['a cost for options', () => limiter.check('a', 'x', 2)],
      ],
    ],
  ],
  unknown_rule: [
    [/there is no|unknown|rule/i, [['', () => limiter.check('login', 'x')]]],
    [/there is no|unknown|rule/i, [['no text', () => limiter.check('', 'x')]]],
    [/there is no|unknown|rule/i, [['of several', () => limiter.checkAll(['a', 'login'], 'x')]]],
    [/there is no|unknown|rule/i, [['of acquire', () => limiter.acquire('login', 'x')]]],
    [/there is no|unknown|rule/i, [['of reset', () => limiter.reset('login', 'x')]]],
    [/there is no|unknown|rule/i, [['a name of Object', () => limiter.check('toString', 'x')]]],
    [/there is no|unknown|rule/i, [['__proto__', () => limiter.check('__proto__', 'x')]]],
  ],
  invalid_rule: [[/./, [['limits at the call', () => limiter.check('a', 'x', { limits: 'lots' })]]]],
  invalid_receipt: [
    [/receipt/i, ['not one of ours', undefined, 17, null].map((told) => [`${told}`, () => limiter.refund(told)])],
  ],
}

for (const [code, groups] of Object.entries(REFUSED)) {
  for (const [hint, calls] of groups) {
    for (const [what, call] of calls) {
      test(`${code}: ${what} ${call}`, async () => {
        let promise
        assert.doesNotThrow(() => (promise = call()), 'a call rejects, and never throws')
        await assert.rejects(promise, isRefused(code, hint))
      })
    }
  }
}

test('options that are null are none', async () => {
  const ours = limiterOf()
  assert.equal((await ours.check('a', 'x', null)).remaining, 4)
  assert.equal((await ours.acquire('a', 'x', null)).remaining, 3)
  await ours.reset('a', 'x', null)
  assert.equal((await ours.peek('a', 'x', undefined)).remaining, 5)
})

test('the receipt of a refusal is empty, and gives nothing back', async () => {
  const ours = limiterOf()
  const { receipt } = await ours.check('a', 'x', { cost: 5 })
  const refused = await ours.check('a', 'x')
  assert.equal(refused.receipt, '')
  assert.equal(await ours.refund(refused.receipt), false)
  assert.equal(await ours.refund(receipt), true)
})

test('one that is refused does not harm those of the same tick', async () => {
  const ours = limiterOf()
  const calls = [ours.check('a', 'x'), ours.check('a', '\ud800'), ours.check('no', 'x'), ours.check('a', 'x')]
  const told = await Promise.allSettled(calls)
  assert.deepEqual(
    told.map(({ value, reason }) => value?.remaining ?? reason.code),
    [4, 'invalid_request', 'unknown_rule', 3],
  )
})

/** What cannot be made: it throws, for there is no promise yet. */
const UNMADE = {
  'no options': [() => new Limiter(), 'invalid_request', /rules|document/],
  'an empty object': [() => new Limiter({}), 'invalid_rule', /rule/],
  'rules and a document': [() => new Limiter({ rules: RULES, document: {} }), 'invalid_request', /rules|document/],
  'a rule that is none': [() => new Limiter({ rules: { a: 'lots' } }), 'invalid_rule', /a/],
  'a rule of null': [() => new Limiter({ rules: { a: null } }), 'invalid_document', /a/],
  'an unknown option': [
    () => new Limiter({ rules: RULES, redis: 'redis://127.0.0.1' }),
    'invalid_request',
    /redis|url/,
  ],
  'a URL of another kind': [() => new Limiter({ rules: RULES, url: 'http://127.0.0.1' }), 'invalid_document', /redis:/],
  'a URL that is none': [() => new Limiter({ rules: RULES, url: 17 }), 'invalid_document', /url.*text/i],
  'a deadline of 0': [
    () => new Limiter({ rules: RULES, deadline: 0 }),
    'invalid_request',
    /deadline|duration|time|10s/,
  ],
  'a deadline in words': [() => new Limiter({ rules: RULES, deadline: 'soon' }), 'invalid_request', /deadline.*soon/],
  'a document that is none': [() => new Limiter({ document: '{', format: 'json' }), 'invalid_document', /./],
  'a file that is not there': [() => new Limiter({ document: '/no/such.toml' }), 'invalid_document', /such\.toml/],
  'a format that is none': [() => new Limiter({ document: '{}', format: 'xml' }), 'invalid_request', /toml/],
  'a policy of nothing': [() => new Policy(), 'invalid_request', /document/],
  'a policy with an unknown option': [() => new Policy({}, { timer: 1 }), 'invalid_request', /timer.*format and clock/],
  'a policy with an unknown rule': [
    () => new Policy({ version: 1, rules: {}, routes: [{ path: '/', rules: 'r', key: 'ip' }] }),
    'invalid_document',
    /r/,
  ],
}
for (const [name, [make, code, hint]] of Object.entries(UNMADE)) {
  test(`a limiter is not made of ${name}`, () => assert.throws(make, isRefused(code, hint)))
}

test('a limiter needs new, and its methods need a limiter', async () => {
  assert.throws(() => Limiter({ rules: RULES }), TypeError)
  const { check } = limiter
  await assert.rejects(async () => check('a', 'x'))
})

test('a logger is a function', () => {
  for (const logger of [17, 'console', {}])
    assert.throws(() => setLogger(logger), isRefused('invalid_request', /logger/))
})

test('sync checks are of memory, and say so elsewhere', () => {
  const ours = limiterOf()
  assert.equal(ours.checkSync('a', 'x').remaining, 4)
  assert.equal(ours.checkSync('a', Buffer.from('x'), { cost: 2 }).remaining, 2)
  assert.throws(() => ours.checkSync('a', '\ud800'), isRefused('invalid_request', /surrogate|Unicode|UTF-8/i))
  assert.throws(() => ours.checkSync('no', 'x'), isRefused('unknown_rule', /no/))
  assert.throws(() => limiterOf(redis.url).checkSync('a', 'x'), isRefused('invalid_request', /check|memory/))
})

test('no rejection is left unhandled, whatever fails', async (t) => {
  const hurt = await own(t, 'server')
  await hurt.do('pause')
  const source = `
    import { Limiter, Policy } from 'tidegate'
    const { url, prefix } = given
    const limiter = new Limiter({ rules: { a: '5/m' }, url, prefix, deadline: '100ms' })
    const policy = new Policy({
      version: 1, store: { url, prefix, deadline: '100ms' }, rules: { a: '5/m' },
      routes: [{ path: '/', rules: 'a', key: 'ip' }],
    })
    for (let call = 0; call < 1000; call += 1) limiter.check('a', 'x') // nobody waits for these
    limiter.acquire('a', 'x', { timeout: 200 })
    const admission = await policy.admit(policy.request('GET', '/'), { peer: '203.0.113.7' })
    admission.settle(500)
    admission.undo()
    const off = new AbortController()
    const wait = limiter.acquire('a', 'y', { signal: off.signal, timeout: '1h' }).catch(({ name }) => name)
    off.abort()
    const failing = [limiter.ready(50), limiter.refund('x'), limiter.count('a', 'x', '1m', 1), limiter.check('a', '')]
    const told = [await wait, ...(await Promise.all(failing.map((call) => call.catch(({ code }) => code !== undefined))))]
    await new Promise((resolve) => setTimeout(resolve, 500))
    console.log(told.join(' '))`
  const flags = ['--unhandled-rejections=strict']
  const ended = await runNode(source, { url: hurt.url, prefix: prefix() }, { flags })
  await hurt.do('resume')
  const expected = { code: 0, signal: null, err: '', out: 'AbortError true true true true\n' }
  assert.deepEqual({ ...end(ended), out: ended.out }, expected)
})

const ROUTES = { version: 1, rules: { a: '5/m' }, routes: [{ path: '/', rules: 'a', key: ['ip', 'app:k'] }] }
const policyOf = (key = ['ip']) =>
  new Policy({ ...ROUTES, routes: [{ ...ROUTES.routes[0], key, without_identity: 'refuse' }] })

test('what is told of a request cannot be meant: it rejects, and does not harm those of the same turn', async () => {
  const policy = policyOf()
  const one = () => policy.request('GET', '/')
  const bad = [
    [one(), { peer: '203.0.113.7', answers: new Set(['x']) }, /list of questions/],
    [one(), { peer: '203.0.113.7', answers: 'staff' }, /list of questions/],
    [one(), { peer: '203.0.113.7', headers: { accept: '*/*' } }, /flat list/],
    [one(), { peer: '203.0.113.7', headers: ['accept'] }, /flat list/],
    [one(), { peer: '203.0.113.7', headers: ['content-length', 5] }, /header's value/],
    [one(), { peer: '203.0.113.7', after: {} }, /after/],
    [one(), { peer: '203.0.113.7', user: 7 }, /text or bytes/],
    [policyOf().request('GET', '/'), { peer: '203.0.113.7' }, /another policy/],
  ]
  for (const [at, [request, told, hint]] of bad.entries()) {
    const before = policy.admit(one(), { peer: `198.51.100.${at}` })
    const refused = policy.admit(request, told)
    const behind = policy.admit(one(), { peer: `198.51.100.${at}` })
    await assert.rejects(refused, isRefused('invalid_request', hint))
    assert.deepEqual(await Promise.all([before, behind].map(async (a) => (await a).decisions[0].remaining)), [4, 3])
  }
})

test('a check that is made while another is told harms neither', async () => {
  const ours = limiterOf()
  let inner
  const options = {
    get cost() {
      inner ??= ours.check('b', 'inner', { cost: 4 })
      return 2
    },
  }
  const outer = ours.check('a', 'outer', options)
  assert.deepEqual([(await outer).remaining, (await inner).remaining], [3, 6])
  inner = undefined
  assert.equal(ours.checkSync('a', 'sync', options).remaining, 3)
  assert.equal((await inner).remaining, 2)
})

test('a request that is admitted while another is told harms neither', async () => {
  const policy = policyOf(['app:k'])
  let inner
  const values = {
    get k() {
      inner ??= policy.admit(policy.request('GET', '/'), { values: { k: 'inner' } })
      return 'outer'
    },
  }
  const outer = policy.admit(policy.request('GET', '/'), { values })
  for (const admission of [await outer, await inner]) assert.equal(admission.decisions[0].remaining, 4)
})

test('more lists of rules than are known at once: each check is what it was', async () => {
  const ours = limiterOf()
  const unknown = Array.from({ length: 999 }, (_, at) => ours.check(`no${at}`, 'x').catch(({ code }) => code))
  assert.deepEqual(new Set(await Promise.all(unknown)), new Set(['unknown_rule']))
  const calls = [ours.check('a', 'a long key', { cost: 3 }), ours.check('b', 'x'), ours.checkAll(['a', 'b'], 'y')]
  assert.deepEqual(
    (await Promise.all(calls)).map(({ limit, remaining }) => [limit, remaining]),
    [[5, 2], [10, 9], [5, 4]], // prettier-ignore
  )
})

test('no list of rules is called as another', async () => {
  const ours = limiterOf()
  for (const made of ['\na\nb', ['a\nb'], '\n["a","b"]', 'a\nb', ['\na\nb']]) {
    await assert.rejects(ours.check(made, 'x'), isRefused('unknown_rule', /rule/))
  }
  assert.equal((await ours.check(['a', 'b'], 'x')).limits.length, 2)
  await assert.rejects(ours.check('\na\nb', 'x'), isRefused('unknown_rule', /rule/))
})

test('a test clock and an address of what is none', () => {
  for (const start of [NaN, -1, Infinity, 'noon', null, {}, 2 ** 60, 10n]) {
    assert.throws(() => new FakeClock(start), isRefused('invalid_request', /milliseconds since 1970/))
  }
  const request = policyOf().request('GET', '/')
  for (const told of [{ peer: 5 }, { headers: [1, 2] }]) {
    assert.throws(() => request.clientAddress(told), isRefused('invalid_request', /type/))
    assert.throws(() => request.clientKey(told), isRefused('invalid_request', /type/))
  }
})

test('letters beyond bytes in a header are not those of another', async () => {
  const policy = new Policy(
    {
      version: 1,
      rules: { a: '1/m' },
      http: { default: { rules: 'a', key: 'header:x-key', without_identity: 'refuse' } },
    },
    { clock: new FakeClock() },
  )
  const request = policy.request('GET', '/')
  // The low byte of the first letter is the second.
  for (const key of ['x\u0141y', 'xAy', 'x\u00e9y']) {
    const told = { headers: ['X-Key', key] }
    assert.equal((await policy.admit(request, told)).allowed, true, key)
    assert.equal((await policy.admit(request, told)).allowed, false, key)
  }
})

test("a test runner's timers hold nothing back", async () => {
  const source = `
    import { mock } from 'node:test'
    import { Limiter, Policy } from 'tidegate'
    mock.timers.enable()
    const policy = new Policy({ version: 1, rules: { a: '5/m' }, routes: [{ path: '/', rules: 'a', key: 'ip' }] })
    const limiter = new Limiter({ rules: { a: '5/m' }, url: given.url, prefix: given.prefix, deadline: '20s' })
    const admission = await policy.admit(policy.request('GET', '/'), { peer: '203.0.113.7' })
    console.log(admission.allowed, (await limiter.check('a', 'x')).allowed)`
  const ended = await runNode(source, { url: redis.url, prefix: prefix() }, { flags: ['--no-warnings'] })
  assert.deepEqual({ ...end(ended), out: ended.out }, { code: 0, signal: null, err: '', out: 'true true\n' })
})
