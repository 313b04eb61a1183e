//! How the command ends: its exit codes, and what it says when it cannot go on.

use std::io::{self, Write as _};
use std::process::ExitCode;

use tidegate::{Error, ErrorKind};

use crate::screen::{BOLD, RED};

/// The exit codes, which scripts rely on; `--help` has them too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    Done = 0,
    /// The request was refused; the demo could not have its server; the doctor found problems.
    Refused = 1,
    /// The command line, the configuration or a file cannot be meant or read.
    Misused = 2,
    StoreFailed = 3,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit as u8)
    }
}

/// Why the command cannot go on.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Whoever read our output has gone (`| head`): there is nobody left to tell.
    Closed,
    Told {
        exit: Exit,
        message: String,
        advice: Option<String>,
    },
}

impl Failure {
    pub(crate) fn misused(message: impl Into<String>, advice: impl Into<String>) -> Failure {
        Failure::Told { exit: Exit::Misused, message: message.into(), advice: Some(advice.into()) }
    }

    /// The same failure with another exit code.
    pub(crate) fn exiting(self, other: Exit) -> Failure {
        match self {
            Failure::Closed => Failure::Closed,
            Failure::Told { message, advice, .. } => Failure::Told { exit: other, message, advice },
        }
    }

    /// The same failure in other words.
    pub(crate) fn rephrased(self, words: impl FnOnce(String) -> String) -> Failure {
        match self {
            Failure::Closed => Failure::Closed,
            Failure::Told { exit, message, advice } => Failure::Told { exit, message: words(message), advice },
        }
    }

    /// Says it on standard error, and ends the process.
    pub(crate) fn tell(self) -> ExitCode {
        let Failure::Told { exit, message, advice } = self else { return Exit::Done.into() };
        let mut out = anstream::AutoStream::auto(io::stderr().lock());
        // If even that cannot be written, the exit code still says it.
        let _ = writeln!(out, "{RED}error:{RED:#} {message}");
        if let Some(advice) = advice {
            let _ = writeln!(out, "  {BOLD}try:{BOLD:#} {advice}");
        }
        exit.into()
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        let exit = match error.kind() {
            ErrorKind::InvalidRule
            | ErrorKind::InvalidDocument
            | ErrorKind::InvalidRequest
            | ErrorKind::UnknownRule => Exit::Misused,
            _ => Exit::StoreFailed,
        };
        Failure::Told { exit, advice: advice(error.kind()).map(str::to_owned), message: error.to_string() }
    }
}

/// What to do, where the message of the core does not say it.
pub(crate) fn advice(kind: ErrorKind) -> Option<&'static str> {
    match kind {
        ErrorKind::StoreUnavailable => {
            Some("start the server, or correct the url; `redis-cli -h HOST -p PORT ping` tells whether it answers")
        }
        ErrorKind::Timeout => {
            Some("look at the server's load and the way to it; `redis-cli -h HOST -p PORT --latency` tells")
        }
        ErrorKind::CorruptState => Some("`tidegate reset` with the same rule, key and options cures it"),
        _ => None,
    }
}

/// For what is written to standard output alone: what is read says where it was read from.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Failure::Closed;
        }
        Failure::misused(
            format!("standard output cannot be written: {error}"),
            "send it somewhere with room, and with the right to write",
        )
    }
}
