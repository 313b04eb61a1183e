import { setInterval } from 'node:timers'

import { Decision } from './decision.js'
import { errorCodes, TidegateError, thrown } from './errors.js'
import { Queue, takeLog, type Admission } from './native.js'
import { report } from './log.js'
import { Chunk, KIND, RECORD } from './record.js'

/** What a counter of `count` has. */
export interface Counted {
  /** The units in the window. */
  readonly total: number
  /** Milliseconds until the window ends, rounded up; 0 where there is none. */
  readonly leftMs: number
  /** When the window began by the store's clock, in microseconds since 1970; 0 where there is none. */
  readonly start: number
}

/** A request in a sliding_window_log. */
export interface LogEntry {
  /** When it was, in microseconds since 1970. */
  readonly at: number
  readonly units: number
}

/** What a call answers. */
type Answer = Decision | boolean | undefined | Counted | LogEntry[] | Admission

/** A call that is to be answered. */
export interface Call {
  resolve(answer: never): void
  reject(error: unknown): void
}

// A timer that a test runner has put a clock of its own under would hold no loop: this is taken before that.
const FOREVER = 2 ** 31 - 1

/**
 * @internal The calls of this thread's event loop that are on their way. There is one for all limiters: it wakes the loop
 * once for however many answers have come. It keeps the loop running while a call is on its way, and not longer.
 */
export class Loop {
  readonly queue = new Queue(() => this.#wake())
  #chunk = new Chunk()
  readonly #calls: (Call | undefined)[] = []
  readonly #free: number[] = []
  #pending = 0
  readonly #hold = setInterval(() => undefined, FOREVER).unref()

  /** The ticket of a call. */
  ticket(call: Call): number {
    if (this.#pending++ === 0) this.#hold.ref()
    const ticket = this.#free.pop() ?? this.#calls.length
    this.#calls[ticket] = call
    return ticket
  }

  /** The call of a ticket, which is free again. */
  take(ticket: number): Call {
    const call = this.#calls[ticket]!
    this.#calls[ticket] = undefined
    this.#free.push(ticket)
    if (--this.#pending === 0) this.#hold.unref()
    return call
  }

  /** A call of which the addon says at once whether it can be made; its answer comes later. */
  call<T>(submit: (queue: Queue, ticket: number) => void): Promise<T> {
    return new Promise<T>((resolve, reject) => {
      const ticket = this.ticket({ resolve, reject })
      try {
        submit(this.queue, ticket)
      } catch (error) {
        this.take(ticket).reject(thrown(error))
      }
    })
  }

  /**
   * Lets the addon write records, until it has no more, and answers the calls that they are of. `write` is given a place, and
   * says where it has ended, or 1 more if something is left.
   */
  read(write: (chunk: Buffer, at: number) => number): void {
    for (;;) {
      const chunk = this.#chunk
      const start = chunk.used
      const told = write(chunk.bytes, start)
      const isLeft = (told & 1) === 1
      chunk.used = isLeft ? told - 1 : told
      if (isLeft) this.#chunk = start === 0 && chunk.used === 0 ? chunk.larger() : new Chunk()
      this.#answer(chunk, start / 8, chunk.used / 8)
      if (!isLeft) break
      write = this.#drain
    }
    if (this.queue.hasLog()) report(takeLog())
  }

  readonly #drain = (chunk: Buffer, at: number): number => this.queue.drain(chunk, at)

  #wake(): void {
    this.read(this.#drain)
  }

  #answer(chunk: Chunk, at: number, end: number): void {
    const { numbers } = chunk
    while (at < end) {
      const ticket = numbers[at + RECORD.ticket]!
      const kind = numbers[at + RECORD.kind]!
      const call = this.take(ticket)
      if (kind === KIND.decision) call.resolve(new Decision(chunk, at) as never)
      else if (kind === KIND.error) call.reject(failed(chunk, at))
      else call.resolve(this.#other(chunk, at, kind, ticket) as never)
      at += numbers[at + RECORD.length]!
    }
  }

  #other({ numbers }: Chunk, at: number, kind: number, ticket: number): Answer {
    const first = at + RECORD.first
    switch (kind) {
      case KIND.truth:
        return numbers[first] === 1
      case KIND.counted:
        return { total: numbers[first]!, leftMs: numbers[first + 1]!, start: numbers[first + 2]! }
      case KIND.admission:
        return this.queue.takeAdmission(ticket)
      case KIND.log:
        return entries(this.queue.takeLog(ticket))
      default:
        return undefined
    }
  }
}

/** @internal The error that a record tells. */
function failed(chunk: Chunk, at: number): TidegateError {
  const first = at + RECORD.first
  const message = chunk.text((first + 2) * 8, chunk.numbers[first + 1]!)
  return new TidegateError(errorCodes()[chunk.numbers[first]!]!, message)
}

function entries(flat: number[]): LogEntry[] {
  return Array.from({ length: flat.length / 2 }, (_, index) => ({ at: flat[2 * index]!, units: flat[2 * index + 1]! }))
}

let made: Loop | undefined

/** @internal This thread's, made by the first limiter: to import the package starts nothing. */
export function loop(): Loop {
  return (made ??= new Loop())
}
