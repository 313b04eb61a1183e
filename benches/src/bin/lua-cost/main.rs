//! What a check costs the server: instructions, by callgrind, and bytes. Ours beside the textbook's scripts.
//!
//! `lua-cost [WORD...]` measures the cases whose names contain one of the words, or all. It takes some minutes. Run it
//! with `JSON=1` for a line per case on standard output; the table is then on standard error.

mod callgrind;
mod capture;
mod cases;
mod measure;
mod script;

use std::error::Error;
use std::io;
use std::process::ExitCode;

use indicatif::{ProgressBar, ProgressStyle};
use tidegate_benches::report::{Line, Report, Unit};
use tidegate_tests::servers::Server;

use crate::callgrind::Profiled;
use crate::capture::Capture;
use crate::cases::{Case, Peer, What};
use crate::script::Script;

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let wanted = |case: &Case| words.is_empty() || words.iter().any(|word| case.name.contains(word.as_str()));
    let cases: Vec<Case> = cases::all().into_iter().filter(wanted).collect();
    let progress = ProgressBar::new(cases.len() as u64);
    progress.set_style(ProgressStyle::with_template("{bar:30} {pos}/{len} {msg} {elapsed}")?);
    let bench = Bench::start()?;
    let mut report = Report::new();
    let mut servers = profiled()?;
    for (name, words) in [("PING", &["PING"][..]), ("INCR", &["INCR", "counter"])] {
        let figure = mean(&mut servers, |server| measure::plain(server, words))?;
        report.calibrate(name, figure, Unit::Instructions);
    }
    for case in &cases {
        progress.set_message(case.name);
        report.add(bench.measure(case)?)?;
        progress.inc(1);
    }
    progress.finish_and_clear();
    Ok(report.finish()?)
}

/// How many servers a case is counted in. Each hashes by a seed of its own, so that the same command costs it up to 0.3 %
/// more or less; together they are steady.
const SERVERS: u64 = 4;

/// New ones for each case: what another case has left of its memory costs up to a tenth more.
fn profiled() -> io::Result<Vec<Profiled>> {
    (0..SERVERS).map(|_| Profiled::start()).collect()
}

/// What something costs a server, in the mean.
fn mean(servers: &mut [Profiled], count: impl FnMut(&mut Profiled) -> io::Result<u64>) -> io::Result<u64> {
    let costs: Vec<u64> = servers.iter_mut().map(count).collect::<io::Result<_>>()?;
    Ok((costs.iter().sum::<u64>() + SERVERS / 2) / SERVERS)
}

/// A plain server, and what the core sends it.
struct Bench {
    plain: Server,
    capture: Capture,
}

impl Bench {
    fn start() -> Result<Bench, Box<dyn Error>> {
        let plain = Server::start();
        let capture = Capture::start(plain.port())?;
        Ok(Bench { plain, capture })
    }

    fn measure(&self, case: &Case) -> Result<Line, Box<dyn Error>> {
        let mut ours = Script::ours(&self.capture, case.rule)?;
        let mut peer = match case.peer {
            Peer::Log(limits) => Script::textbook_log(limits),
            Peer::Bucket(limits) => Script::textbook_bucket(limits),
        };
        let (ours, peer, unit) = match case.what {
            What::Check(shape) => {
                let (mut servers, calls) = (profiled()?, shape.peer_calls);
                let ours = mean(&mut servers, |server| measure::instructions(server, &mut ours, &shape, shape.calls))?;
                let peer = mean(&mut servers, |server| measure::instructions(server, &mut peer, &shape, calls))?;
                (ours, peer, Unit::Instructions)
            }
            What::Key { keys, checks } => {
                let ours = measure::bytes(&self.plain, &mut ours, keys, checks)?;
                (ours, measure::bytes(&self.plain, &mut peer, keys, checks)?, Unit::Bytes)
            }
        };
        Ok(Line { case: case.name, ours, peer, peer_name: case.peer.name(), unit, bar: case.bar })
    }
}
