//! Six real nodes under load from several client processes, and what can happen to them. `make chaos` runs it.
//!
//! ```text
//! chaos [SCENARIO...] [--quick] [--rounds N] [--clients N] [--seconds N]
//! ```
//!
//! Each scenario has a cluster of its own. The clients, this program again, ask it through the public crate and write
//! down every call; then the checker holds that against the contract. Faults are in `faults`, laws in `checker`.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "its output is what it is run for")]

mod checker;
mod client;
mod faults;
mod net;
mod record;
mod report;
mod rules;
mod stage;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Duration;

use checker::Findings;
use faults::{SCENARIOS, Scenario};
use stage::Stage;

/// What was asked for.
#[derive(Debug)]
struct Options {
    scenarios: Vec<&'static Scenario>,
    rounds: usize,
    clients: usize,
    /// Of load besides the fault: a third before it, the rest after.
    seconds: u64,
    /// In the namespaces that its scenario needs, as the given round.
    inside: Option<usize>,
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [order, document, out, number] = &arguments[..]
        && order == "client"
    {
        client::run(Path::new(document), Path::new(out), number.parse().expect("the parent passes a number"));
        return ExitCode::SUCCESS;
    }
    let options = match parse(&arguments) {
        Ok(options) => options,
        Err(advice) => {
            eprintln!("{advice}");
            return ExitCode::from(2);
        }
    };
    let held = match options.inside {
        Some(round) => options.scenarios.iter().all(|scenario| run(scenario, round, &options)),
        None => all(&options),
    };
    if held { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn parse(arguments: &[String]) -> Result<Options, String> {
    let mut options = Options { scenarios: Vec::new(), rounds: 1, clients: 3, seconds: 6, inside: None };
    let (mut quick, mut words) = (false, arguments.iter());
    while let Some(word) = words.next() {
        let mut number = |from: usize, to: usize| {
            let number =
                words.next().and_then(|number| number.parse().ok()).filter(|number| (from..=to).contains(number));
            number.ok_or_else(|| format!("write {word} and a number from {from} to {to}"))
        };
        match &word[..] {
            "--quick" => (quick, options.seconds) = (true, 3),
            "--rounds" => options.rounds = number(1, 1_000)?,
            "--clients" => options.clients = number(1, 16)?,
            "--seconds" => options.seconds = number(3, 60)? as u64,
            "--inside" => options.inside = Some(number(0, usize::MAX)?),
            name => match SCENARIOS.iter().find(|scenario| scenario.name == name) {
                Some(scenario) => options.scenarios.push(scenario),
                None => return Err(usage(name)),
            },
        }
    }
    if options.scenarios.is_empty() {
        options.scenarios = SCENARIOS.iter().filter(|scenario| scenario.quick || !quick).collect();
    }
    Ok(options)
}

fn usage(name: &str) -> String {
    let scenarios: Vec<String> =
        SCENARIOS.iter().map(|scenario| format!("  {:<16}{}", scenario.name, scenario.about)).collect();
    let options = "--quick, --rounds N, --clients N, --seconds N (of load besides the fault)";
    format!("there is no scenario {name:?}; write none for all, or some of\n{}\nand {options}", scenarios.join("\n"))
}

fn all(options: &Options) -> bool {
    let (mut held, mut left_out) = (true, Vec::new());
    let namespaces =
        if options.scenarios.iter().any(|scenario| scenario.network) { net::enter() } else { Ok(Vec::new()) };
    report::head();
    for round in 0..options.rounds {
        if options.rounds > 1 {
            println!("round {} of {}", round + 1, options.rounds);
        }
        for scenario in &options.scenarios {
            held &= match &namespaces {
                _ if !scenario.network => run(scenario, round, options),
                Ok(words) => run_within(words, scenario, round, options),
                Err(_) => {
                    println!("{:<15}LEFT OUT: no network namespaces here", scenario.name);
                    left_out.push(scenario.name);
                    true
                }
            };
        }
    }
    report::legend();
    if let Err(why) = namespaces {
        left_out.dedup();
        println!(
            "\nLEFT OUT, so not known to hold: {}. Network namespaces are not permitted here ({why}).",
            left_out.join(", ")
        );
    }
    held
}

/// Runs a scenario by this program again, in namespaces that end with it.
fn run_within(words: &[&str], scenario: &Scenario, round: usize, options: &Options) -> bool {
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).args(["setpriv", "--pdeathsig", "KILL"]);
    command.arg(std::env::current_exe().expect("this program has a file")).arg(scenario.name);
    command.args(["--inside", &round.to_string(), "--clients", &options.clients.to_string()]);
    command.args(["--seconds", &options.seconds.to_string()]);
    command.status().is_ok_and(|status| status.success())
}

/// Runs a scenario, prints its row, and tells whether the contract held.
fn run(scenario: &Scenario, round: usize, options: &Options) -> bool {
    let played = catch_unwind(AssertUnwindSafe(|| play(scenario, round, options)));
    let findings = played.unwrap_or_else(|panic| {
        let words = panic.downcast_ref::<String>().map(String::as_str);
        let words = words.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic");
        Findings { problems: vec![format!("the scenario itself failed: {words}")], ..Findings::default() }
    });
    report::row(scenario.name, &findings);
    findings.problems.is_empty()
}

fn play(scenario: &Scenario, round: usize, options: &Options) -> Findings {
    let stage = Stage::set(options.clients, round % 3, scenario.network, scenario.password);
    let load = Duration::from_secs(options.seconds);
    record::pause(load / 3);
    let masters = |stage: &Stage| -> Vec<u16> { stage.cluster.masters().iter().map(|node| node.port()).collect() };
    let before = masters(&stage);
    let faults = (scenario.inject)(&stage);
    record::pause(load * 2 / 3);
    let stayed = before == masters(&stage);
    let (mut evidence, problems) = stage.strike();
    evidence.faults = faults;
    let mut findings = checker::check(&evidence);
    findings.problems.splice(0..0, problems);
    if stayed == scenario.failover {
        let unmeant = "other nodes are primaries than the scenario means; is the machine too busy?";
        findings.problems.insert(0, unmeant.to_owned());
    }
    findings
}
