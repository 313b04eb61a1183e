import { loop } from './loop.js'
import { Writer } from './key.js'

/** The numbers that stand first: how many calls there are, where their bytes begin, and a flag. `src/args.rs` reads them. */
const FIRST = 3
const SIZE = 16_384

/** @internal Calls that cross to the addon together, in memory that both sides keep: so many numbers for each, then bytes. */
export class Crossing {
  readonly writer: Writer
  /** How many calls are written. */
  count = 0
  readonly #width: number
  readonly #most: number
  readonly #start: number
  readonly #loop = loop()
  readonly #connect: (memory: Buffer) => () => number
  #memory: Buffer | undefined
  #send!: () => number

  /**
   * @param width the numbers of each
   * @param most so many leave at once
   * @param connect makes the function that has the addon read some memory
   */
  constructor(width: number, most: number, connect: (memory: Buffer) => () => number) {
    this.#width = width
    this.#most = most
    this.#connect = connect
    this.#start = (FIRST + width * most) * 8
    this.writer = new Writer(SIZE, this.#start)
  }

  /** Where the numbers of the next call stand. */
  get place(): number {
    return FIRST + this.count * this.#width
  }

  get isFull(): boolean {
    return this.count === this.#most
  }

  /** Lets them cross, and answers those that are answered at once. */
  leave(flag = false): void {
    const { bytes, numbers } = this.writer
    if (bytes !== this.#memory) {
      // The first time, and where it has grown.
      this.#memory = bytes
      this.#send = this.#connect(bytes)
    }
    numbers[0] = this.count
    numbers[1] = this.#start
    numbers[2] = flag ? 1 : 0
    // The next ones are written over these.
    this.count = 0
    this.writer.used = this.#start
    this.#loop.read(this.#send())
  }
}

const now = Promise.resolve()

/** @internal When this tick's code has run. A microtask, which no test runner's clock holds back as it may queueMicrotask. */
export function soon(work: () => void): void {
  void now.then(work)
}
