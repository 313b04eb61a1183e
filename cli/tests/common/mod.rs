//! The real binary, run as a user would run it.
#![allow(dead_code, reason = "each test file uses its own part")]

use std::io::Write as _;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

/// What a run of the command left behind.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl From<Output> for Ran {
    fn from(output: Output) -> Ran {
        let text = |bytes| String::from_utf8(bytes).expect("the command prints UTF-8 whatever it reads");
        Ran { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
    }
}

impl Ran {
    #[track_caller]
    pub(crate) fn exits(self, code: i32) -> Ran {
        assert_eq!(self.code, Some(code), "{self:#?}");
        self
    }

    /// The one line of `--json`.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        assert_eq!(self.out.matches('\n').count(), 1, "one line: {self:#?}");
        assert!(self.out.ends_with('\n'), "a whole line: {self:#?}");
        serde_json::from_str(&self.out).expect("the line is JSON")
    }

    /// An error that names its reason, with nothing on standard output.
    #[track_caller]
    pub(crate) fn complains(&self, of: &str) {
        assert!(self.err.starts_with("error: ") && self.err.contains(of), "{of:?} in {self:#?}");
        assert_eq!(self.out, "", "{self:#?}");
    }

    #[track_caller]
    pub(crate) fn says(&self, text: &str) {
        assert!(self.out.contains(text), "{text:?} in:\n{}\n{}", self.out, self.err);
    }
}

/// The command, untouched by the environment of whoever runs the tests.
pub(crate) fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.args(arguments).env_remove("TIDEGATE_URL").env_remove("CLICOLOR_FORCE").stdin(Stdio::null());
    command
}

pub(crate) fn tidegate(arguments: &[&str]) -> Ran {
    command(arguments).output().expect("the binary was built for this test").into()
}

/// The same with something on standard input.
pub(crate) fn tidegate_reading(input: &[u8], arguments: &[&str]) -> Ran {
    let mut command = command(arguments);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the binary was built for this test");
    let mut stdin = child.stdin.take().expect("it was asked for");
    std::thread::scope(|scope| {
        scope.spawn(move || stdin.write_all(input).expect("the command reads all of its input"));
        child.wait_with_output().expect("the command ends when its input does").into()
    })
}
