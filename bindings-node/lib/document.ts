import { invalid } from './errors.js'
import { milliseconds, type Duration } from './duration.js'
import type { Clock } from './native.js'
import type { Document, Rule } from './types.js'

/** How text is written that is a document. */
export type Format = 'toml' | 'yaml' | 'json'

/** What a limiter is made of: rules, and where their state lives. */
export interface RulesOptions {
  /** The rules by name: `{ login: '5/m' }`. */
  rules?: { readonly [name: string]: Rule } | undefined
  /** Where state lives, such as `redis://127.0.0.1:6379`: memory unless said, or what `TIDEGATE_URL` says. */
  url?: string | undefined
  /** What every stored key begins with: `tidegate` unless said. */
  prefix?: string | undefined
  /** How long the store may take, 1 ms to 60 s: 100 ms unless said. */
  deadline?: Duration | undefined
  /** In memory, on this clock. */
  clock?: Clock | undefined
}

/** A whole document instead. */
export interface DocumentOptions {
  /** An object, the path of a file, or with a `format` text. */
  document: Document | string
  format?: Format | undefined
  /** In memory, on this clock. */
  clock?: Clock | undefined
}

/** What a limiter is made of. */
export type LimiterOptions = RulesOptions | DocumentOptions

/** @internal A document as the addon takes it: text and its format, or a path. */
export type Source = [text: string, format: Format | 'path']

/** @internal */
export function source(options: LimiterOptions): Source {
  if (options === null || typeof options !== 'object') {
    throw invalid("write what it is made of as an object, such as { rules: { login: '5/m' } }")
  }
  const { clock: _clock, ...said } = options
  if ('document' in said) {
    const { document, format, ...rest } = said
    refuseOthers(rest, 'document, format and clock; what else there is stands in the document')
    return ofDocument(document, format)
  }
  const { rules, url, prefix, deadline, ...rest } = said
  refuseOthers(rest, 'rules, url, prefix, deadline and clock, or document')
  const wait = deadline === undefined ? undefined : `${Math.ceil(milliseconds(deadline, 'deadline'))}ms`
  return ofDocument({ version: 1, store: defined({ url, prefix, deadline: wait }), rules: rules ?? {} } as Document)
}

/** @internal */
export function ofDocument(document: Document | string, format?: Format): Source {
  if (typeof document === 'string') {
    if (format === undefined) return [document, 'path']
    if (format === 'toml' || format === 'yaml' || format === 'json') return [document, format]
    throw invalid(
      `there is no format ${JSON.stringify(format)}; write 'toml', 'yaml' or 'json', or leave it out for a path`,
    )
  }
  if (document === null || typeof document !== 'object') {
    throw invalid('a document is an object, the path of a file, or text with its format')
  }
  return [JSON.stringify(document), 'json']
}

/** @internal Refuses an option that is not known: it would be ignored. */
export function refuseOthers(rest: object, known: string): void {
  const [name] = Object.keys(rest)
  if (name !== undefined) throw invalid(`${name} is no option here; there are ${known}`)
}

/** @internal The fields that are said. */
export function defined<T extends object>(fields: T): Partial<T> {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined)) as Partial<T>
}
