/**
 * Loads the addon, so that where no binary fits the error says why. `native.ts` has what is in it.
 * @module
 */

/** The libc of this process, as it matters to binaries for Linux. */
function libc(): string {
  if (process.platform !== 'linux') return ''
  try {
    const { header } = process.report.getReport() as { header?: { glibcVersionRuntime?: string } }
    return header?.glibcVersionRuntime ? ` with glibc ${header.glibcVersionRuntime}` : ' with musl'
  } catch {
    return ' with an unknown libc'
  }
}

/**
 * What the loader tried, a line for each: behind its own error stand those of its attempts, the last one first. It tries
 * WebAssembly too, which nobody offers.
 */
function tried(error: unknown): string[] {
  const first: unknown = error instanceof Error ? (error.cause ?? error) : error
  const lines: string[] = []
  for (let one = first; one instanceof Error; one = one.cause) lines.unshift(`  ${one.message.split('\n', 1)[0]}`)
  return lines.filter((line) => !line.includes('wasi'))
}

function failed(cause: unknown): Error {
  const here = `${process.platform}-${process.arch}${libc()}, Node ${process.version}`
  const message = [
    `tidegate has no addon that loads on ${here}. What was tried:`,
    ...tried(cause),
    'Binaries come as optional packages, tidegate-<platform>-<arch>. Install with them (npm install --include=optional),',
    'on the platform where it is to run, with a lock file that names that platform too. For a platform that has none,',
    'build it from a clone of the repository with Rust: "make package-node". NAPI_RS_NATIVE_LIBRARY_PATH names a binary',
    'that is elsewhere.',
  ]
  return Object.assign(new Error(message.join('\n'), { cause }), { code: 'ERR_TIDEGATE_ADDON' })
}

try {
  require('../native.js')
} catch (cause) {
  throw failed(cause)
}
