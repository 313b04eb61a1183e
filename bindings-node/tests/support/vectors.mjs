// The files that every store and language reads: tests/vectors/README.md.
import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import path from 'node:path'

import { ROOT } from './servers.mjs'

/** The cases of one file. */
export function cases(name) {
  const { cases } = JSON.parse(readFileSync(path.join(ROOT, 'tests', 'vectors', `${name}.json`), 'utf8'))
  assert.ok(cases.length > 0)
  return cases
}

/** Text or bytes, as the files write them. */
export function part(given) {
  if (typeof given === 'string') return given
  return 'hex' in given ? Buffer.from(given.hex, 'hex') : given.text.repeat(given.times)
}

/** What is expected and not so, as a list of texts; times are compared in whole milliseconds, rounded up. */
export function differences(expected, found, name = '') {
  const different = () => [`${name}: ${JSON.stringify(expected)} and not ${JSON.stringify(found)}`]
  if (Array.isArray(expected)) {
    if (!Array.isArray(found) || found.length !== expected.length) return different()
    return expected.flatMap((one, place) => differences(one, found[place], name))
  }
  if (expected !== null && typeof expected === 'object') {
    if (found === null || typeof found !== 'object') return different()
    return Object.entries(expected).flatMap(([key, value]) => differences(value, found[key], key))
  }
  const wanted = name.endsWith('_us') && expected !== null ? Math.ceil(expected / 1000) : expected
  return Object.is(wanted, found) ? [] : different()
}
