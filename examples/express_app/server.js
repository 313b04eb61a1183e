// A shop whose uploads and logins are limited by the document beside it: no handler knows of it.
const { createHmac, timingSafeEqual } = require('node:crypto')
const path = require('node:path')

const express = require('express')
const { admissionOf, rateLimit } = require('tidegate/express')

const SECRET = 'only-for-this-example-and-no-other-site'
const PASSWORDS = new Map([
  ['alice', 'alice'],
  ['bob', 'bob'],
])

const limiter = rateLimit({
  policy: path.join(__dirname, 'tidegate.toml'),
  user: (req) => userOf(req), // asked of uploads only: no other route needs it
})

const app = express()
app.disable('x-powered-by')
app.use(limiter) // before whatever reads a body

app.post('/login', express.urlencoded({ extended: false }), (req, res) => {
  const { name, password } = req.body ?? {}
  if (PASSWORDS.get(name) !== password || password === undefined) {
    return res.status(401).json({ error: 'wrong name or password' })
  }
  res.cookie('session', `${name}.${signature(name)}`, { httpOnly: true, sameSite: 'lax' }).json({ user: name })
})

app.post('/upload', express.raw({ type: () => true, limit: '1mb' }), (req, res) => {
  const [decision] = admissionOf(req).decisions // what the limiter has decided, for whoever wants to know
  res.json({ received: req.body?.length ?? 0, remaining: decision.remaining })
})

/** Who a request is from, by a cookie that only this server can write. */
function userOf(req) {
  const [, name, given] = /(?:^|; )session=(\w+)\.(\w+)/.exec(req.get('Cookie') ?? '') ?? []
  if (name === undefined) return null
  const right = Buffer.from(signature(name))
  return given.length === right.length && timingSafeEqual(Buffer.from(given), right) ? name : null
}

function signature(name) {
  return createHmac('sha256', SECRET).update(name).digest('hex')
}

const server = app.listen(Number(process.env.PORT ?? 8000), '127.0.0.1', () => {
  const address = `127.0.0.1:${server.address().port}`
  console.log(`Listening on ${address}. In another terminal:
  curl -c jar -d name=alice -d password=alice ${address}/login
  for i in 1 2 3 4 5 6 7; do curl -b jar -id bytes ${address}/upload; echo; done`)
})

process.once('SIGTERM', () => {
  server.close(() => limiter.close())
  server.closeIdleConnections()
})
