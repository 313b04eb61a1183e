//! Standard output: colour where it is wanted, tables, bars. Eighty columns are enough.

use std::io::{self, StdoutLock, Write};

use anstream::AutoStream;
use anstyle::{AnsiColor, Style};
use comfy_table::{CellAlignment, ContentArrangement, LineStyle, Table, TableStyle};

pub(crate) const BOLD: Style = Style::new().bold();
pub(crate) const RED: Style = AnsiColor::Red.on_default();
pub(crate) const GREEN: Style = AnsiColor::Green.on_default();
pub(crate) const YELLOW: Style = AnsiColor::Yellow.on_default();

/// Standard output, held for as long as the command runs. Colour reaches a terminal alone, and none under `NO_COLOR`.
pub(crate) struct Screen(AutoStream<StdoutLock<'static>>);

impl Screen {
    pub(crate) fn stdout() -> Screen {
        Screen(AutoStream::auto(io::stdout().lock()))
    }

    /// A heading with a line of space above it.
    pub(crate) fn heading(&mut self, text: &str) -> io::Result<()> {
        writeln!(self, "\n{BOLD}{text}{BOLD:#}\n")
    }

    /// Something that the reader must not miss.
    pub(crate) fn warning(&mut self, text: &str) -> io::Result<()> {
        writeln!(self, "{YELLOW}{text}{YELLOW:#}")
    }

    /// A table; what its bars show beyond a limit is red.
    pub(crate) fn table(&mut self, table: &Table) -> io::Result<()> {
        for line in table.lines() {
            let line = line.trim_end();
            match (line.find(OVER), line.rfind(OVER)) {
                (Some(from), Some(last)) => {
                    let to = last + OVER.len_utf8();
                    writeln!(self, "{}{RED}{}{RED:#}{}", &line[..from], &line[from..to], &line[to..])?;
                }
                _ => writeln!(self, "{line}")?,
            }
        }
        Ok(())
    }
}

impl Write for Screen {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// A table of these columns: `>` before a name sets its column to the right.
pub(crate) fn table<const N: usize>(columns: [&str; N]) -> Table {
    const STYLE: TableStyle = TableStyle::new().header_separator(LineStyle::none().fill('─').junction('─'));
    let mut table = Table::new();
    table.load_style(STYLE).set_content_arrangement(ContentArrangement::Dynamic).set_width(80);
    table.set_header(columns.map(|name| name.trim_start_matches('>')));
    for (column, name) in table.column_iter_mut().zip(columns) {
        if name.starts_with('>') {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

const WITHIN: char = '█';
const OVER: char = '▒';
const REST: char = '░';

/// A bar of `value` where `width` cells are `whole`; what lies beyond `limit` looks different, with colour or without.
pub(crate) fn bar(value: u64, limit: u64, whole: u64, width: u64) -> String {
    let cells = |part: u64| (part * width + whole / 2) / whole.max(1);
    // Something is never drawn as nothing, nor too much as enough.
    let within = cells(value.min(limit)).max(u64::from(value > 0 && limit > 0));
    let over = cells(value).saturating_sub(within).max(u64::from(value > limit));
    let draw = |character: char, count: u64| (0..count).map(move |_| character);
    draw(WITHIN, within).chain(draw(OVER, over)).collect()
}

/// A bar with what is left of it shown.
pub(crate) fn gauge(value: u64, whole: u64, width: usize) -> String {
    let drawn = bar(value.min(whole), whole, whole, width as u64);
    let rest = width.saturating_sub(drawn.chars().count());
    drawn.chars().chain(std::iter::repeat_n(REST, rest)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_is_as_long_as_its_value_and_marks_what_is_too_much() {
        assert_eq!(bar(100, 100, 200, 10), "█████");
        assert_eq!(bar(200, 100, 200, 10), "█████▒▒▒▒▒");
        assert_eq!(bar(101, 100, 200, 10), "█████▒");
        assert_eq!(bar(1, 100, 200, 10), "█");
        assert_eq!(bar(0, 100, 200, 10), "");
        assert_eq!(bar(0, 0, 0, 10), "");
        assert_eq!(gauge(5, 10, 4), "██░░");
        assert_eq!(gauge(0, 0, 2), "░░");
    }
}
