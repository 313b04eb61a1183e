import { Kept } from './native.js'

/**
 * @internal What stands where in the records that the addon writes; `src/record.rs` writes them. A record is numbers, then the
 * bytes that they tell the lengths of: its ticket, its kind, its length in numbers, and what follows of that kind.
 */
export const KIND = { decision: 0, error: 1, truth: 2, done: 3, counted: 4, admission: 5, log: 6 } as const

/** @internal Places of the numbers that every record has. */
export const RECORD = { ticket: 0, kind: 1, length: 2, first: 3 } as const

/** @internal Places of a decision's numbers, from its beginning. */
export const DECISION = {
  allowed: 3,
  origin: 4,
  repeat: 5,
  limit: 6,
  remaining: 7,
  retryAfter: 8,
  resetAfter: 9,
  binding: 10,
  receipt: 11,
  failure: 12,
  message: 13,
  limits: 14,
  numbers: 15,
} as const

/** @internal Places of the numbers of one of its limits. */
export const LIMIT = {
  allowed: 0,
  enforced: 1,
  algorithm: 2,
  limit: 3,
  window: 4,
  burst: 5,
  precision: 6,
  remaining: 7,
  retryAfter: 8,
  resetAfter: 9,
  rule: 10,
  name: 11,
} as const

/** @internal */
export const LIMIT_NUMBERS = 12

/** @internal Places of an admission's numbers. Behind them stand the name and the length of each field, and two lengths more. */
export const ADMISSION = {
  place: 3,
  allowed: 4,
  outcome: 5,
  shadow: 6,
  mayRefund: 7,
  status: 8,
  fields: 9,
  numbers: 10,
} as const

const SIZE = 8192

/** @internal A piece of memory into which the addon writes records, one behind the other and none over another. */
export class Chunk {
  readonly numbers: Float64Array
  readonly bytes: Buffer
  /** The admissions among the records. */
  readonly kept = new Kept()
  /** How many numbers of it have been read. */
  read = 0

  constructor(size: number = SIZE) {
    const memory = new ArrayBuffer(size)
    this.numbers = new Float64Array(memory)
    this.bytes = Buffer.from(memory)
  }

  /** The one after this, into which a record fits that does not fit into the rest of this. */
  next(): Chunk {
    return new Chunk(this.read === 0 ? this.bytes.length * 2 : SIZE)
  }

  text(start: number, length: number): string {
    return length === 0 ? '' : this.bytes.toString('utf8', start, start + length)
  }
}
