//! `tidegate doctor`: looks at the servers, and says in words what is wrong with them and what to do.

mod findings;
mod json;
mod judge;
mod nodes;

use std::io::Write as _;
use std::time::Duration;

use tidegate::{Document, Limiter};

use self::findings::{Finding, Level};
use crate::args::Doctor;
use crate::failure::{Exit, Failure};
use crate::screen::Screen;

/// How long it takes at the most; `--help` says it too.
const WITHIN: Duration = Duration::from_secs(5);

pub(crate) fn run(doctor: &Doctor, screen: &mut Screen) -> Result<Exit, Failure> {
    let mut builder = Limiter::builder();
    if let Some(file) = &doctor.config {
        builder = builder.document(&Document::read(file)?);
    }
    if let Some(prefix) = &doctor.prefix {
        builder = builder.prefix(prefix);
    }
    if let Some(url) = doctor.url.as_deref().filter(|url| !url.is_empty()) {
        builder = builder.url(url);
    }
    let inspection = builder.inspect(WITHIN).wait()?;
    let findings = judge::findings(&inspection);
    let exit = if findings.iter().any(|finding| finding.level == Level::Problem) { Exit::Refused } else { Exit::Done };
    let told = if doctor.json {
        writeln!(screen, "{}", json::report(&inspection, &findings)).map_err(Failure::from)
    } else {
        report(&findings, inspection.nodes.iter().filter(|node| node.server.is_ok()).count(), screen)
    };
    match told {
        // The exit code is an answer too, and must be the right one even if nobody reads the other.
        Ok(()) | Err(Failure::Closed) => Ok(exit),
        Err(failure) => Err(failure),
    }
}

fn report(findings: &[Finding], reached: usize, screen: &mut Screen) -> Result<(), Failure> {
    for finding in findings {
        findings::show(finding, reached, screen)?;
    }
    let count = |level| findings.iter().filter(|finding| finding.level == level).count();
    let plural = |count: usize, what: &str| match count {
        0 => format!("no {what}s"),
        1 => format!("1 {what}"),
        _ => format!("{count} {what}s"),
    };
    let (problems, warnings) = (count(Level::Problem), count(Level::Warning));
    let style = if problems > 0 {
        Level::Problem
    } else if warnings > 0 {
        Level::Warning
    } else {
        Level::Ok
    }
    .style();
    writeln!(screen, "\n{style}{}, {}{style:#}", plural(problems, "problem"), plural(warnings, "warning"))?;
    Ok(())
}
