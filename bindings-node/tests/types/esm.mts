// As an ES module has it.
import { Limiter, Policy, TidegateError, type Decision } from 'tidegate'
import { FakeClock } from 'tidegate/testing'

const limiter: Limiter = new Limiter({ rules: { a: '1/m' }, clock: new FakeClock() })
export const decision: Decision = await limiter.check('a', 'x')
export const error: Error = new TidegateError('timeout', 'too late')
export const routes: string[] = new Policy('tidegate.toml').routes
