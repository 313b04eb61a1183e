import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import path from 'node:path'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'

const PACKAGE = fileURLToPath(new URL('../', import.meta.url))

test('Fastify, Koa and Hono take the limiters by their types, from ES modules and CommonJS', async () => {
  const tsc = path.join(PACKAGE, 'node_modules', '.bin', 'tsc')
  const { stdout } = await promisify(execFile)(tsc, ['-p', path.join('tests', 'types-frameworks')], { cwd: PACKAGE })
  assert.equal(stdout, '')
})
