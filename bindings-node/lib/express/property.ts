import { IncomingMessage } from 'node:http'

/**
 * The property of requests that tells how their limit stands.
 *
 * Express gives each request a prototype, and so a hidden class of its own: where a property is added to one, V8 makes another
 * class for this request alone, of a kilobyte and in some 2 us of the 14 that the middleware takes (`make bench-node`,
 * `express-cpu`). So the property is an accessor that Express's requests inherit, and their values stand elsewhere.
 */
export class Property {
  /** The prototype of the last request: most have the same. */
  private prototype: object | null = null

  constructor(private readonly name: string) {}

  set(request: object, value: unknown): void {
    const prototype = Object.getPrototypeOf(request) as object | null
    if (prototype !== this.prototype) {
      declare(request, prototype, this.name)
      this.prototype = prototype
    }
    // As everybody else would set it: a request that is of no application has it as its own.
    ;(request as Record<string, unknown>)[this.name] = value
  }
}

/** A request as Express makes it. */
interface OfExpress {
  readonly res?: { readonly req?: OfExpress }
  readonly rawHeaders?: readonly string[]
}

/** The request that somebody stands before, as proxies do; none where it is no other. */
function behind(one: OfExpress): OfExpress | undefined {
  const request = one.res?.req
  const isBehind = request !== one && request?.rawHeaders !== undefined && request.rawHeaders === one.rawHeaders
  return isBehind ? request : undefined
}

/**
 * Gives the property to all requests of Express, unless they have one of this name. Not to those of one application alone: a
 * request that comes to an application in another, or in several, has another prototype there than before and afterwards.
 */
function declare(request: object, prototype: object | null, name: string): void {
  if (prototype === null || !Object.hasOwn(prototype, 'app') || name in request) return
  let requests = prototype
  while (Object.getPrototypeOf(requests) !== IncomingMessage.prototype) {
    requests = Object.getPrototypeOf(requests) as object
    if (requests === null) return
  }
  if (!Object.isExtensible(requests)) return
  const values = new WeakMap<object, unknown>()
  Object.defineProperty(requests, name, {
    configurable: true,
    enumerable: true,
    get(this: OfExpress) {
      if (values.has(this)) return values.get(this)
      const request = behind(this)
      return request && values.get(request)
    },
    set(this: OfExpress, value: unknown) {
      if (Object.hasOwn(this, 'app')) {
        // An application's default, for its own requests.
        Object.defineProperty(this, name, { value, configurable: true, enumerable: true, writable: true })
        return
      }
      const request = behind(this)
      const isProxy = request !== undefined && Object.getPrototypeOf(this) === Object.getPrototypeOf(request)
      values.set(isProxy ? request : this, value)
    },
  })
}
