// The README's snippets say what they print, and print it.
import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import path from 'node:path'
import test from 'node:test'

import { PACKAGE, end, runNode } from './support/processes.mjs'

const readme = readFileSync(path.join(PACKAGE, 'README.md'), 'utf8')
// One that serves for ever prints nothing.
const snippets = [...readme.matchAll(/^```js\n(.*?)^```$/gms)]
  .map(([, text]) => text)
  .filter((text) => /console/.test(text))

test('there are snippets', () => assert.ok(snippets.length >= 3))

for (const snippet of snippets) {
  test(
    snippet.split('\n').find((line) => line.includes('new ')),
    async () => {
      const says = [...snippet.matchAll(/console\.log\(.*\) \/\/ (.*)$/gm)].map(([, said]) => `${said}\n`)
      const ended = await runNode(snippet)
      assert.deepEqual({ ...end(ended), out: ended.out }, { code: 0, signal: null, err: '', out: says.join('') })
    },
  )
}

test('every code of an error is told', async () => {
  const { out } = await runNode(`
    import { names } from './dist/native.js'
    console.log(JSON.stringify(names().errors))`)
  for (const code of JSON.parse(out)) assert.ok(readme.includes(`\`${code}\``), code)
})

test('what the package says by itself is told of, and who takes it', () => {
  for (const name of ['TidegateWarning', 'setLogger', 'NODE_DEBUG=tidegate']) assert.ok(readme.includes(name), name)
})
