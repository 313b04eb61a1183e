// The code in a page of docs/, to be run.
import { readFileSync } from 'node:fs'
import path from 'node:path'
import { ROOT } from './servers.mjs'

const AsyncFunction = (async () => {}).constructor

/** The blocks of a page in one language, in order, each with the heading that it stands under. */
export function snippets(page, language) {
  const text = readFileSync(path.join(ROOT, 'docs', page), 'utf8')
  const found = []
  let heading = ''
  for (const [, title, fence, code] of text.matchAll(/^#+ (.+)$|^```(\w*)\n([^]*?)^```$/gm)) {
    if (title) heading = title
    else if (fence === language) found.push({ heading, code })
  }
  return found
}

/**
 * Runs a block as a module would: what it imports comes from `load`, and what it exports, or names in `wanted`, is
 * returned.
 */
export async function run(code, load, wanted = []) {
  const names = [...code.matchAll(/^export (?:async )?(?:function|const|class) (\w+)/gm)].map(([, name]) => name)
  const body = code
    .replace(/^import (\w+) from ('[^']+')$/gm, 'const { default: $1 } = await load($2)')
    .replace(/^import ({[^}]+}) from ('[^']+')$/gm, (_, list, from) => {
      return `const ${list.replaceAll(' as ', ': ')} = await load(${from})`
    })
    .replace(/^import ('[^']+')$/gm, 'await load($1)')
    .replace(/^export /gm, '')
  return new AsyncFunction('load', `${body}\nreturn { ${[...names, ...wanted].join(', ')} }`)(load)
}
