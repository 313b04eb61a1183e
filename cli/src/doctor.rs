//! `tidegate doctor`: looks at the servers, and says in words what is wrong with them and what to do.

mod code;
mod findings;
mod json;
mod judge;
mod nodes;

use std::io::Write as _;
use std::time::Duration;

use self::findings::{Finding, Level};
use crate::args::Doctor;
use crate::failure::{Exit, Failure};
use crate::screen::Screen;

/// How long it takes at the most; `--help` says it too.
const WITHIN: Duration = Duration::from_secs(5);

pub(crate) fn run(doctor: &Doctor, screen: &mut Screen) -> Result<Exit, Failure> {
    let inspection = doctor.store.builder()?.inspect(WITHIN).wait()?;
    let findings = judge::findings(&inspection);
    let exit =
        if findings.iter().any(|finding| finding.level() == Level::Problem) { Exit::Refused } else { Exit::Done };
    let told = if doctor.store.json {
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
    let count = |level| findings.iter().filter(|finding| finding.level() == level).count();
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

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    #[test]
    fn the_help_says_how_long_it_takes() {
        let mut command = crate::args::Arguments::command();
        let help = command.find_subcommand_mut("doctor").expect("it is a command").render_help().to_string();
        let within = format!("It takes {} seconds at the most.", super::WITHIN.as_secs());
        assert!(help.contains(&within), "{within:?} in {help}");
    }
}
