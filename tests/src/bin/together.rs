//! Processes in several languages on one key: together they admit exactly the limit, by every algorithm, on a server and on a
//! cluster.
//!
//! ```text
//! together LANGUAGE=COMMAND...
//! ```
//!
//! A command is split on spaces, and gets the path of a document and a number of calls. It says `ready`, begins at a line of
//! input, and then prints how many of its calls of the rule `hammer` for the key `alice` were admitted.
#![allow(clippy::print_stdout, reason = "its output is what it is run for")]

use std::io::{BufRead as _, BufReader, Error, Result, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use serde_json::json;
use tidegate::Algorithm;
use tidegate_tests::servers::{shared_cluster, shared_server};

/// Of each language; all of them together ask for twice the limit.
const CALLS: usize = 1_000;

fn main() -> Result<()> {
    let told: Vec<String> = std::env::args().skip(1).collect();
    let languages: Vec<(&str, &str)> = told.iter().filter_map(|told| told.split_once('=')).collect();
    if languages.len() < 2 || languages.len() != told.len() {
        return Err(Error::other("write: together LANGUAGE=COMMAND LANGUAGE=COMMAND..."));
    }
    let limit = CALLS * languages.len() / 2;
    let mut failed = 0;
    for (store, url) in [("redis", shared_server().url()), ("cluster", shared_cluster().url())] {
        for algorithm in Algorithm::ALL.iter().map(|one| one.name()) {
            let folder = tempfile::tempdir()?;
            // A bucket of thousands in 366 days has its next unit after hours; windows that begin by the clock end in some year.
            let limits = format!("{limit}/366d {algorithm}");
            let counts = admitted(&languages, &url, &format!("together-{algorithm}"), &limits, folder.path())?;
            let sum: usize = counts.iter().map(|(_, count)| count).sum();
            failed += usize::from(sum != limit);
            let shown: Vec<String> = counts.iter().map(|(language, count)| format!("{language} {count}")).collect();
            println!("{store:8} {algorithm:22} {sum} of {limit} admitted: {}", shown.join(", "));
        }
    }
    let passed = 2 * Algorithm::ALL.len() - failed;
    println!("{passed} passed, {failed} failed");
    if failed > 0 { Err(Error::other("some admitted more or less than the limit")) } else { Ok(()) }
}

fn admitted<'l>(
    languages: &[(&'l str, &str)],
    url: &str,
    prefix: &str,
    limits: &str,
    folder: &Path,
) -> Result<Vec<(&'l str, usize)>> {
    let document = folder.join("tidegate.json");
    let said = json!({
        "version": 1,
        "store": {"url": url, "prefix": prefix, "deadline": "20s"},
        "rules": {"hammer": {"limits": limits, "on_error": "deny"}},
    });
    std::fs::write(&document, said.to_string())?;
    let begin = |(language, command): &(&'l str, &str)| Running::begin(language, command, &document);
    let mut running = languages.iter().map(begin).collect::<Result<Vec<_>>>()?;
    running.iter_mut().try_for_each(Running::go)?;
    running.into_iter().map(Running::count).collect()
}

/// A process that checks the key; it ends with this value.
struct Running<'l> {
    language: &'l str,
    child: Child,
    output: BufReader<ChildStdout>,
}

impl<'l> Running<'l> {
    fn begin(language: &'l str, command: &str, document: &Path) -> Result<Running<'l>> {
        let mut words = command.split(' ');
        let program = words.next().unwrap_or_default();
        let mut child = Command::new(program)
            .args(words)
            .arg(document)
            .arg(CALLS.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| Error::other(format!("{language}: {program}: {error}")))?;
        let output = child.stdout.take().map(BufReader::new).ok_or_else(|| Error::other("its output is piped"))?;
        let mut running = Running { language, child, output };
        match running.line()?.as_str() {
            "ready" => Ok(running),
            other => Err(Error::other(format!("{language} is not ready; it says {other:?}"))),
        }
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        Ok(line.trim_end().to_owned())
    }

    fn go(&mut self) -> Result<()> {
        let input = self.child.stdin.as_mut().ok_or_else(|| Error::other("its input is piped"))?;
        input.write_all(b"go\n")?;
        input.flush()
    }

    fn count(mut self) -> Result<(&'l str, usize)> {
        let line = self.line()?;
        let count = line.parse().map_err(|_| Error::other(format!("{} says {line:?}", self.language)))?;
        let status = self.child.wait()?;
        if status.success() {
            Ok((self.language, count))
        } else {
            Err(Error::other(format!("{}: {status}", self.language)))
        }
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
