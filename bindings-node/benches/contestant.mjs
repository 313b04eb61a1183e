// One contestant, in a process of its own: `contestant.mjs WHO KIND URLS` proves that it limits, and then plays a round
// whenever it is told to. What a round took, it tells.
import { contestant, refused } from './checks.mjs'
import { handled, served } from './express.mjs'

const KINDS = { checks: contestant, denied: refused, express: handled, serve: served }

const [who, kind, urls] = process.argv.slice(2)
// With who started it gone, there is nobody to play for.
process.on('disconnect', () => process.exit(1))

try {
  const play = await KINDS[kind](who, JSON.parse(urls))
  process.on('message', async (round) => {
    try {
      process.send({ done: await play(round) })
    } catch (error) {
      fail(error)
    }
  })
  process.send({ done: 'ready' })
} catch (error) {
  fail(error)
}

function fail(error) {
  process.send({ failed: `${who}: ${error?.stack ?? error}` }, () => process.exit(1))
}
