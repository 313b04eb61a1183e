import { setInterval } from 'node:timers'

import { Admission } from './admission.js'
import { Decision } from './decision.js'
import { errorCodes, TidegateError, thrown } from './errors.js'
import { Queue, takeLog } from './native.js'
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
type Answer = Decision | boolean | undefined | Counted | LogEntry[]

/** A call that is to be answered. */
export interface Call {
  resolve(answer: never): void
  reject(error: unknown): void
}

/** Said with where records end: that some did not fit, and that there are lines to log. `src/queue.rs` says it. */
const LEFT = 1
const LINES = 2

const FOREVER = 2 ** 31 - 1
/** And not a runtime that takes Node's place, whose event loop is another. */
const IS_NODE = process.release?.name === 'node' && !('bun' in process.versions) && !('deno' in process.versions)
/** Node's own: a test runner puts another into the module too. */
const every = setInterval

/**
 * @internal The calls of this thread's event loop that are on their way. There is one for all limiters: it wakes the loop
 * once for however many answers have come. It keeps the loop running while a call is on its way, and not longer.
 */
export class Loop {
  readonly queue = new Queue(() => this.read(this.#drain()), IS_NODE)
  #chunk = new Chunk()
  readonly #drain = this.queue.drainer() as () => number
  readonly #calls: (Call | undefined)[] = []
  readonly #free: number[] = []
  #pending = 0
  readonly #hold = every(() => undefined, FOREVER).unref()
  #holds = false

  constructor() {
    this.#turn(this.#chunk)
  }

  /** The ticket of a call. */
  ticket(call: Call): number {
    this.#pending++
    const ticket = this.#free.pop() ?? this.#calls.length
    this.#calls[ticket] = call
    return ticket
  }

  /** The call of a ticket, which is free again. */
  take(ticket: number): Call {
    const call = this.#calls[ticket]!
    this.#calls[ticket] = undefined
    this.#free.push(ticket)
    this.#pending--
    return call
  }

  /** Keeps the loop running while calls are on their way. To be called when some may have set out, or come. */
  hold(): void {
    const holds = this.#pending > 0
    if (holds === this.#holds) return
    this.#holds = holds
    if (holds) this.#hold.ref()
    else this.#hold.unref()
  }

  /** A call of which the addon says at once whether it can be made; its answer comes later. */
  call<T>(submit: (queue: Queue, ticket: number) => void): Promise<T> {
    return new Promise<T>((resolve, reject) => {
      const ticket = this.ticket({ resolve, reject })
      try {
        submit(this.queue, ticket)
        this.hold()
      } catch (error) {
        this.take(ticket).reject(thrown(error))
      }
    })
  }

  /** Answers the calls whose records the addon has written, and has it write the rest where it says that not all have fit. */
  read(told: number): void {
    for (;;) {
      const chunk = this.#chunk
      this.#answer(chunk, told >>> 3)
      if ((told & LINES) !== 0) report(takeLog())
      if ((told & LEFT) === 0) break
      this.#turn(chunk.next())
      told = this.#drain()
    }
    this.hold()
  }

  /** Lets go of the admissions that nobody has any more: they hold the store of their policy. */
  letGo(): void {
    this.#turn(new Chunk())
  }

  #turn(chunk: Chunk): void {
    this.#chunk = chunk
    this.queue.writeInto(chunk.bytes, chunk.kept)
  }

  #answer(chunk: Chunk, end: number): void {
    const { numbers } = chunk
    let at = chunk.read
    while (at < end) {
      const record = at
      at += numbers[at + RECORD.length]!
      chunk.read = at
      const ticket = numbers[record + RECORD.ticket]!
      const kind = numbers[record + RECORD.kind]!
      const call = this.take(ticket)
      if (kind === KIND.decision) call.resolve(new Decision(chunk, record) as never)
      else if (kind === KIND.admission) call.resolve(new Admission(chunk, record) as never)
      else if (kind === KIND.error) call.reject(failed(chunk, record))
      else call.resolve(this.#other(chunk, record, kind, ticket) as never)
    }
  }

  #other({ numbers }: Chunk, at: number, kind: number, ticket: number): Answer {
    const first = at + RECORD.first
    switch (kind) {
      case KIND.truth:
        return numbers[first] === 1
      case KIND.counted:
        return { total: numbers[first]!, leftMs: numbers[first + 1]!, start: numbers[first + 2]! }
      case KIND.log:
        return entries(this.queue.takeLog(ticket))
      default:
        return undefined
    }
  }
}

const fieldNames: string[] = []

/** @internal The name of a field that records tell by its place. */
export function fieldName(place: number): string {
  return (fieldNames[place] ??= loop().queue.name(place))
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

/** @internal Makes something of which the core may say something at once: whoever takes that is there before it. */
export function heard<T>(make: () => T): T {
  loop()
  const made = make()
  report(takeLog())
  return made
}
