import { invalid } from './errors.js'

/**
 * Who is limited: text (UTF-8), bytes, or a list of parts of them, which never mix. `'7'` and the bytes of `'7'` are the same
 * key; `['a', 'b']` and `'ab'` are not.
 */
export type Key = string | Uint8Array | readonly (string | Uint8Array)[]

const LONG = 64
const BEYOND_BYTES = /[^\u0000-\u00ff]/

/** @internal Memory in which bytes are written one after the other, behind numbers; it grows as they need it. */
export class Writer {
  bytes: Buffer
  /** The same memory as numbers. */
  numbers: Float64Array
  /** Where the next byte is written. */
  used: number

  constructor(size: number, start: number) {
    const memory = new ArrayBuffer(size)
    this.bytes = Buffer.from(memory)
    this.numbers = new Float64Array(memory)
    this.used = start
  }

  /** Writes a key; tells of how many parts it is, 0 for one that is no list. */
  key(key: Key): number {
    if (typeof key === 'string' || key instanceof Uint8Array) {
      this.part(key)
      return 0
    }
    if (!Array.isArray(key))
      throw invalid(`a key is text, bytes or a list of them, and not ${kind(key)}; pass String(...)`)
    for (const part of key as readonly (string | Uint8Array)[]) {
      this.told(part)
    }
    return key.length
  }

  /** Writes text or bytes; tells how many bytes that takes. */
  part(part: string | Uint8Array): number {
    const start = this.used
    if (typeof part === 'string') this.text(part)
    else if (part instanceof Uint8Array) {
      this.room(part.length)
      this.bytes.set(part, this.used)
      this.used += part.length
    } else throw invalid(`a part of a key is text or bytes, and not ${kind(part)}; pass String(...) of it`)
    return this.used - start
  }

  /** Writes text or bytes behind their length. */
  told(part: string | Uint8Array): void {
    const place = this.used
    this.room(4)
    this.used += 4
    const length = this.part(part)
    this.bytes.writeUInt32LE(length, place)
  }

  /** Writes a header's value behind its length: Node has made a character of each byte of it. Text of others is UTF-8. */
  line(value: string): void {
    if (typeof value !== 'string') throw invalid(`a header's value is text, and not ${kind(value)}`)
    if (BEYOND_BYTES.test(value)) return this.told(value)
    const length = value.length
    this.room(4 + length)
    this.bytes.writeUInt32LE(length, this.used)
    this.used += 4 + this.bytes.write(value, this.used + 4, 'latin1')
  }

  private text(text: string): void {
    const length = text.length
    this.room(length * 3)
    // Most keys are short and of ASCII: to write them here is cheaper than to ask for it.
    if (length <= LONG) {
      const { bytes, used } = this
      let index = 0
      for (; index < length; index++) {
        const code = text.charCodeAt(index)
        if (code > 127) break
        bytes[used + index] = code
      }
      if (index === length) {
        this.used += length
        return
      }
    }
    if (!isWellFormed(text)) {
      throw invalid('the text has a lone surrogate, which UTF-8 cannot write; pass text.toWellFormed(), or a Buffer')
    }
    this.used += this.bytes.write(text, this.used, 'utf8')
  }

  private room(length: number): void {
    const needed = this.used + length
    if (needed <= this.bytes.length) return
    // Twice as much at least, of a length that whole numbers fill.
    const memory = new ArrayBuffer(Math.ceil(Math.max(needed, this.bytes.length * 2) / 8) * 8)
    const larger = Buffer.from(memory)
    larger.set(this.bytes)
    this.bytes = larger
    this.numbers = new Float64Array(memory)
  }
}

/** @internal A key alone: its bytes, and of how many parts it is. */
export function encoded(key: Key): [Uint8Array, number] {
  const writer = new Writer(LONG, 0)
  const parts = writer.key(key)
  return [writer.bytes.subarray(0, writer.used), parts]
}

/** @internal Whether UTF-8 can write the text. */
export function isWellFormed(text: string): boolean {
  return !/\p{Surrogate}/u.test(text)
}

function kind(value: unknown): string {
  return value === null ? 'null' : typeof value === 'object' ? Object.prototype.toString.call(value) : typeof value
}
