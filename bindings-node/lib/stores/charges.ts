import { AsyncLocalStorage } from 'node:async_hooks'

/** What one increment took, once it is known. */
export interface Charge<T> {
  readonly key: string
  taken: T | undefined
}

/** The most increments of one course of events that can be given back: a bound for one that never ends. */
const MOST = 32

/**
 * What was taken in the course of each request, so that it can be given back where it was taken.
 *
 * Hosts tell a store to decrement a key, and not which increment they mean: of two requests of one client, one from
 * before a window's end and one from after it, either may fail. Both calls of a host are made in one course of
 * asynchronous events, which is what tells them apart.
 */
export class Charges<T> {
  readonly #course = new AsyncLocalStorage<readonly Charge<T>[]>()

  /** A charge of this course of events. Call it before the first `await`, so that the caller's course has it too. */
  begin(key: string): Charge<T> {
    const charge: Charge<T> = { key, taken: undefined }
    const before = this.#course.getStore() ?? []
    // A new list each time: courses that began in this one have what they had.
    this.#course.enterWith([...before.slice(1 - MOST), charge])
    return charge
  }

  /** The newest charge of a key in this course that was not given back; it is taken out. */
  end(key: string): T | undefined {
    const course = this.#course.getStore() ?? []
    for (let index = course.length - 1; index >= 0; index -= 1) {
      const charge = course[index]!
      if (charge.key !== key || charge.taken === undefined) continue
      const { taken } = charge
      charge.taken = undefined
      return taken
    }
    return undefined
  }
}
