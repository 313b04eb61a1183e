import { type Document, type Duration, Policy } from './index.js'
import type { FakeClock } from './testing.js'

/** What a limiter's document says of its store. */
export interface Store {
  url?: string
  prefix?: string
  deadline?: number | string
}

/** A limiter's place on a store. */
export interface Place {
  readonly policy: Policy
  /** Whether another limiter on this store has a rule of this name, and so its buckets. */
  readonly isTaken: boolean
  /** Ends it. */
  leave(): void
}

/** What limiters have in common that are on one store: connections, and the names of their rules. */
interface Shared {
  readonly policy: Policy
  readonly names: Names
  limiters: number
}

/** How many limiters have a rule of a name. */
type Names = Map<string, number>

const stores = new Map<string, Shared>()
const namesBeside = new WeakMap<Policy, Names>()

/** The part of a limiter's options that is about its store, as its document has it. */
export function storeOf(settings: {
  url?: string | undefined
  prefix?: string | undefined
  deadline?: Duration | undefined
}): Store {
  const store: Store = {}
  if (settings.url !== undefined) store.url = settings.url
  if (settings.prefix !== undefined) store.prefix = settings.prefix
  if (settings.deadline !== undefined) store.deadline = settings.deadline
  return store
}

/** Memory for each limiter alone, as on a clock, or a store that is connected to once, however many limiters are on it. */
export function place(store: Store, name: string, document: Document, clock: FakeClock | undefined): Place {
  const url = process.env['TIDEGATE_URL'] || store.url
  if (url === undefined || clock !== undefined) {
    const policy = new Policy(document, { clock })
    return { policy, isTaken: false, leave: () => policy.close() }
  }
  const id = JSON.stringify([url, store.url, store.prefix, store.deadline])
  const shared = stores.get(id)
  const policy = shared === undefined ? new Policy(document) : shared.policy.beside(document)
  return taken(id, shared ?? { policy, names: new Map(), limiters: 0 }, policy, name)
}

function taken(id: string, shared: Shared, policy: Policy, name: string): Place {
  stores.set(id, shared)
  shared.limiters++
  const isTaken = add(shared.names, name)
  let isHere = true
  const leave = () => {
    if (!isHere) return
    isHere = false
    remove(shared.names, name)
    // The first one's policy holds the connections.
    if (policy !== shared.policy) policy.close()
    if (--shared.limiters > 0) return
    shared.policy.close()
    stores.delete(id)
  }
  return { policy, isTaken, leave }
}

/** On the store of a policy that the application has made, and closes itself. */
export function placeBeside(base: Policy, name: string, document: Document): Place {
  const policy = base.beside(document)
  const names = namesBeside.get(base) ?? new Map<string, number>()
  namesBeside.set(base, names)
  const isTaken = add(names, name)
  const leave = () => {
    remove(names, name)
    policy.close()
  }
  return { policy, isTaken, leave }
}

function add(names: Names, name: string): boolean {
  const before = names.get(name) ?? 0
  names.set(name, before + 1)
  return before > 0
}

function remove(names: Names, name: string): void {
  const left = (names.get(name) ?? 1) - 1
  if (left > 0) names.set(name, left)
  else names.delete(name)
}
