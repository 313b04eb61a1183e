//! A finding, and how it is shown: its level, what it is about, what was found, where, and what to do.

use std::io::{self, Write as _};

use anstyle::Style;

use super::code::Code;
use crate::screen::{BOLD, GREEN, RED, Screen, YELLOW};
use crate::words;

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Level {
    Ok,
    /// Worth knowing, such as what could not be found out.
    Note,
    /// Works, and may fail one day.
    Warning,
    /// Does not work.
    Problem,
}

impl Level {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Level::Ok => "ok",
            Level::Note => "note",
            Level::Warning => "warning",
            Level::Problem => "problem",
        }
    }

    pub(super) const fn style(self) -> Style {
        match self {
            Level::Ok => GREEN,
            Level::Note => Style::new(),
            Level::Warning => YELLOW,
            Level::Problem => RED,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Finding {
    pub(super) code: Code,
    pub(super) text: String,
    /// What to type or to change.
    pub(super) advice: Option<String>,
    /// The nodes that it is about.
    pub(super) nodes: Vec<String>,
}

impl Finding {
    pub(super) fn new(code: Code, text: impl Into<String>) -> Finding {
        Finding { code, text: text.into(), advice: None, nodes: Vec::new() }
    }

    pub(super) const fn level(&self) -> Level {
        self.code.level()
    }

    pub(super) fn advice(mut self, advice: impl Into<String>) -> Finding {
        self.advice = Some(advice.into());
        self
    }

    pub(super) fn at(mut self, node: &str) -> Finding {
        self.nodes.push(node.to_owned());
        self
    }
}

/// Makes one of findings that say the same of several nodes.
pub(super) fn merged(findings: impl IntoIterator<Item = Finding>) -> Vec<Finding> {
    let mut merged: Vec<Finding> = Vec::new();
    for mut finding in findings {
        let nodes = std::mem::take(&mut finding.nodes);
        let same = |other: &&mut Finding| Finding { nodes: Vec::new(), ..(*other).clone() } == finding;
        match merged.iter_mut().find(same) {
            Some(other) => other.nodes.extend(nodes),
            None => merged.push(Finding { nodes, ..finding }),
        }
    }
    merged
}

/// Where the text begins: behind the widest level and the widest subject.
const INDENT: usize = 22;
const WIDTH: usize = 80;

/// Shows a finding; its nodes are named unless they are all that were reached, or the text names them.
pub(super) fn show(finding: &Finding, reached: usize, screen: &mut Screen) -> io::Result<()> {
    let style = finding.level().style();
    let mut lines = wrapped(&words::shown(finding.text.as_bytes(), 1_000));
    let named = finding.nodes.iter().all(|node| finding.text.contains(node));
    if finding.nodes.len() != reached && !named {
        lines.extend(wrapped(&format!("at {}", finding.nodes.join(", "))));
    }
    for (number, line) in lines.iter().enumerate() {
        if number == 0 {
            write!(screen, "{style}{:<9}{style:#}{:<13}", finding.level().name(), finding.code.subject())?;
        } else {
            write!(screen, "{:INDENT$}", "")?;
        }
        writeln!(screen, "{line}")?;
    }
    for (number, line) in finding.advice.iter().flat_map(|advice| wrapped(&format!("try: {advice}"))).enumerate() {
        match line.strip_prefix("try: ") {
            Some(line) if number == 0 => writeln!(screen, "{:INDENT$}{BOLD}try:{BOLD:#} {line}", "")?,
            _ => writeln!(screen, "{:INDENT$}{line}", "")?,
        }
    }
    Ok(())
}

/// Lines no wider than the screen, unless a word is.
fn wrapped(text: &str) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let line = lines.last_mut().expect("it begins with one, and none is taken away");
        if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > WIDTH - INDENT {
            lines.push(word.to_owned());
        } else {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_of_several_nodes_is_said_once() {
        let ok = |node| Finding::new(Code::NoEviction, "fine").at(node);
        let bad = Finding::new(Code::Evicts, "not fine").at("b");
        let all = merged([ok("a"), bad.clone(), ok("c")]);
        assert_eq!(all, [Finding { nodes: vec!["a".into(), "c".into()], ..ok("a") }, bad]);
    }

    #[test]
    fn lines_end_before_the_screen_does() {
        let text = "word ".repeat(40) + &"x".repeat(70);
        let lines = wrapped(&text);
        assert_eq!(lines.join(" "), text);
        assert!(lines[..lines.len() - 1].iter().all(|line| line.len() <= WIDTH - INDENT), "{lines:?}");
        assert_eq!(lines.last().map(String::len), Some(70), "a command can be copied whole");
    }
}
