//! What was measured, against its bar: a table for people, and with `JSON=1` a line per case for programs.

use std::fmt;
use std::io::{self, Write as _};
use std::process::ExitCode;

use comfy_table::{CellAlignment, Table, TableStyle};

/// What a figure counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Instructions that the server executed.
    Instructions,
    /// Bytes of the server's `used_memory`.
    Bytes,
    /// Checks in a second.
    ChecksPerSecond,
    /// Nanoseconds that a check takes.
    Nanoseconds,
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Unit::Instructions => "instructions",
            Unit::Bytes => "bytes",
            Unit::ChecksPerSecond => "checks/s",
            Unit::Nanoseconds => "ns",
        })
    }
}

/// What a case must keep to. Ratios are in thousandths.
#[derive(Debug, Clone, Copy)]
pub enum Bar {
    /// At most this figure of ours.
    Most(u64),
    /// At most this ratio of ours to the peer's.
    RatioMost(u64),
    /// At least this ratio of ours to the peer's.
    RatioLeast(u64),
}

impl fmt::Display for Bar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Bar::Most(figure) => write!(f, "<= {}", grouped(*figure)),
            Bar::RatioMost(ratio) => write!(f, "ratio <= {}", thousandths(*ratio)),
            Bar::RatioLeast(ratio) => write!(f, "ratio >= {}", thousandths(*ratio)),
        }
    }
}

/// One case: our figure beside a peer's of the same run.
#[derive(Debug, Clone)]
pub struct Line {
    /// The case's name, the same for good: others look for it.
    pub case: &'static str,
    /// Our figure.
    pub ours: u64,
    /// The peer's.
    pub peer: u64,
    /// Who the peer is.
    pub peer_name: &'static str,
    /// What both count.
    pub unit: Unit,
    /// What must hold.
    pub bar: Bar,
}

impl Line {
    /// Ours to the peer's, in thousandths, rounded to the nearest.
    fn ratio(&self) -> u64 {
        let peer = self.peer.max(1);
        (self.ours * 1_000 + peer / 2) / peer
    }

    fn holds(&self) -> bool {
        match self.bar {
            Bar::Most(figure) => self.ours <= figure,
            Bar::RatioMost(ratio) => self.ratio() <= ratio,
            Bar::RatioLeast(ratio) => self.ratio() >= ratio,
        }
    }

    fn json(&self) -> String {
        let Line { case, ours, peer, peer_name, unit, .. } = self;
        let ratio = thousandths(self.ratio());
        format!(
            r#"{{"case":"{case}","ours":{ours},"peer":{peer},"peer_name":"{peer_name}","unit":"{unit}","ratio":{ratio}}}"#
        )
    }

    fn row(&self) -> [String; 7] {
        [
            self.case.to_owned(),
            grouped(self.ours),
            grouped(self.peer),
            thousandths(self.ratio()),
            self.unit.to_string(),
            self.bar.to_string(),
            if self.holds() { "holds" } else { "FAILS" }.to_owned(),
        ]
    }
}

/// The cases of one run.
#[derive(Debug, Default)]
pub struct Report {
    lines: Vec<Line>,
    /// Rows that say how the instrument stands, for people alone.
    calibration: Vec<(&'static str, u64, Unit)>,
}

impl Report {
    /// A report without a case yet.
    #[must_use]
    pub fn new() -> Report {
        Report::default()
    }

    /// Adds a case, and prints its line at once where lines are asked for.
    ///
    /// # Errors
    /// If standard output cannot be written to.
    pub fn add(&mut self, line: Line) -> io::Result<()> {
        if json() {
            writeln!(io::stdout().lock(), "{}", line.json())?;
        }
        self.lines.push(line);
        Ok(())
    }

    /// Adds a figure that no bar is set for.
    pub fn calibrate(&mut self, name: &'static str, figure: u64, unit: Unit) {
        self.calibration.push((name, figure, unit));
    }

    /// Prints the table, beside the lines on standard error. Fails unless every bar holds.
    ///
    /// # Errors
    /// If the table cannot be written.
    pub fn finish(&self) -> io::Result<ExitCode> {
        let table = self.table();
        if json() {
            writeln!(io::stderr().lock(), "{table}")?;
        } else {
            writeln!(io::stdout().lock(), "{table}")?;
        }
        Ok(if self.lines.iter().all(Line::holds) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    fn table(&self) -> Table {
        let mut table = Table::new();
        table.load_style(TableStyle::default()).set_header(["case", "ours", "peer", "ratio", "unit", "bar", ""]);
        for (name, figure, unit) in &self.calibration {
            table.add_row([(*name).to_owned(), grouped(*figure), String::new(), String::new(), unit.to_string()]);
        }
        for line in &self.lines {
            table.add_row(line.row());
        }
        for column in 1..=3 {
            if let Some(column) = table.column_mut(column) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        table
    }
}

fn json() -> bool {
    std::env::var_os("JSON").is_some_and(|value| value == "1")
}

fn thousandths(ratio: u64) -> String {
    format!("{}.{:03}", ratio / 1_000, ratio % 1_000)
}

/// A figure with commas, as people read it.
fn grouped(figure: u64) -> String {
    let digits = figure.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
