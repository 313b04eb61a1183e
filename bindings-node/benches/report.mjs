// What was measured, against its bar: a table for people, and with `JSON=1` a line per case for programs.

const JSON_LINES = process.env.JSON === '1'

/**
 * One case: our figure beside the best peer's of the same run. `ratio` is the median of the rounds' ratios, which is not
 * always the ratio of the medians.
 *
 * @typedef {{ case: string, ours: number, peer: number, peerName: string, unit: string, ratio: number, bar: number,
 *   atMost?: boolean }} Line
 */

/**
 * A contestant's figure, for people alone. `cpu` is what a check cost the client's processor, in nanoseconds; `ratio` is
 * ours to it.
 *
 * @typedef {{ case: string, who: string, figure: number, unit: string, cpu?: number, ratio?: number }} Shown
 */

/** The cases of one run. */
export class Report {
  /** @type {Line[]} */
  #lines = []
  /** @type {Shown[]} */
  #shown = []

  /** Adds a case, and prints its line at once where lines are asked for. @param {Line} line */
  add(line) {
    this.#lines.push(line)
    if (!JSON_LINES) return
    const { ours, peer, peerName, unit } = line
    const ratio = Number(line.ratio.toFixed(3))
    console.log(
      JSON.stringify({
        case: line.case,
        ours: Math.round(ours),
        peer: Math.round(peer),
        peer_name: peerName,
        unit,
        ratio,
      }),
    )
  }

  /** Adds a figure that no bar is set for. @param {Shown} shown */
  show(shown) {
    this.#shown.push(shown)
  }

  /** Prints the tables, beside the lines on standard error. Gives the exit status: 1 unless every bar holds. */
  finish() {
    const out = JSON_LINES ? process.stderr : process.stdout
    const shownHeads = ['case', 'who', 'figure', 'unit', 'client CPU ns', 'ours to it']
    out.write(table(shownHeads, this.#shown.map(shownRow), [2, 4, 5]))
    const heads = ['case', 'ours', 'peer', 'ratio', 'unit', 'bar', '', 'best peer']
    out.write(table(heads, this.#lines.map(lineRow), [1, 2, 3]))
    return this.#lines.every(holds) ? 0 : 1
  }
}

/** @param {Shown} shown */
function shownRow({ case: name, who, figure, unit, cpu, ratio }) {
  return [
    name,
    who,
    whole(figure),
    unit,
    cpu === undefined ? '' : whole(cpu),
    ratio === undefined ? '' : ratio.toFixed(3),
  ]
}

/** @param {Line} line */
function lineRow(line) {
  const bar = `ratio ${line.atMost ? '<=' : '>='} ${line.bar.toFixed(3)}`
  const verdict = holds(line) ? 'holds' : 'FAILS'
  return [line.case, whole(line.ours), whole(line.peer), line.ratio.toFixed(3), line.unit, bar, verdict, line.peerName]
}

/** What the table shows is what is judged: the ratio in thousandths. @param {Line} line */
function holds({ ratio, bar, atMost }) {
  const shown = Number(ratio.toFixed(3))
  return atMost ? shown <= bar : shown >= bar
}

/** @param {number} figure */
function whole(figure) {
  return Math.round(figure).toLocaleString('en-US')
}

/** @param {string[]} heads @param {string[][]} rows @param {number[]} right which columns are numbers */
function table(heads, rows, right) {
  const widths = heads.map((head, column) => Math.max(...[heads, ...rows].map((row) => row[column].length)))
  const rule = widths.map((width) => '-'.repeat(width))
  const text = (row) =>
    row
      .map((cell, i) => (right.includes(i) ? cell.padStart(widths[i]) : cell.padEnd(widths[i])))
      .join('  ')
      .trimEnd()
  return [heads, rule, ...rows].map(text).join('\n') + '\n\n'
}
