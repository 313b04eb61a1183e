//! The `tidegate` command: see what the limiters do, try a limit on your own log, look at one key.

mod args;
mod ask;
mod clock;
mod demo;
mod doctor;
mod failure;
mod progress;
mod replay;
mod screen;
mod words;

use std::process::ExitCode;

use clap::Parser as _;

use crate::args::{Arguments, Command};
use crate::failure::{Exit, Failure};
use crate::screen::Screen;

fn main() -> ExitCode {
    // A wrong command line ends in here, with exit code 2 and clap's words.
    let arguments = Arguments::parse();
    match run(&arguments.command) {
        Ok(exit) => exit.into(),
        Err(failure) => failure.tell(),
    }
}

fn run(command: &Command) -> Result<Exit, Failure> {
    let mut screen = Screen::stdout();
    match command {
        Command::Demo(demo) => demo::run(demo, &mut screen),
        Command::Replay(replay) => replay::run(replay, &mut screen),
        Command::Check(ask) => ask::check(ask, &mut screen),
        Command::Peek(ask) => ask::peek(ask, &mut screen),
        Command::Show(target) => ask::show(target, &mut screen),
        Command::Doctor(doctor) => doctor::run(doctor, &mut screen),
        Command::Reset(target) => ask::reset(target, &mut screen),
    }
}
