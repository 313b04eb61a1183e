//! A server under callgrind, and how many instructions it executed between two marks.
//!
//! Callgrind writes its counts and begins anew whenever the server enters `ECHO`, which nothing here calls otherwise. So
//! one server can count many intervals, and what a mark costs is in each of them once, and cancels out. The server's cron is taken
//! off: it runs once a second however many calls there were in it, and under valgrind they are few.

use std::fs;
use std::io::{self, BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread;

use redis::{Connection, ConnectionAddr, IntoConnectionInfo as _, RedisResult};
use tempfile::TempDir;

/// The server, and our connection to it.
pub(crate) struct Profiled {
    pub(crate) connection: Connection,
    process: Child,
    folder: TempDir,
    marks: u32,
}

impl Profiled {
    /// Starts a server on a Unix socket in a folder of its own.
    pub(crate) fn start() -> io::Result<Profiled> {
        let folder = TempDir::new()?;
        let mut process = command(folder.path()).spawn()?;
        let log = process.stdout.take().ok_or_else(|| io::Error::other("the server's log was not piped"))?;
        wait_until_ready(log)?;
        let socket = ConnectionAddr::Unix(folder.path().join("socket"));
        let client = socket.into_connection_info().and_then(redis::Client::open).map_err(io::Error::other)?;
        let connection = client.get_connection().map_err(io::Error::other)?;
        Ok(Profiled { connection, process, folder, marks: 0 })
    }

    /// How many instructions the server executed since the last mark, without its cron.
    pub(crate) fn mark(&mut self) -> io::Result<u64> {
        let echoed: RedisResult<()> = redis::cmd("ECHO").arg("mark").query(&mut self.connection);
        echoed.map_err(io::Error::other)?;
        self.marks += 1;
        let counts = self.folder.path().join(format!("counts.{}", self.marks));
        let text = fs::read_to_string(&counts)?;
        fs::remove_file(counts)?;
        counted(&text).ok_or_else(|| io::Error::other("callgrind wrote something else than counts"))
    }
}

impl Drop for Profiled {
    fn drop(&mut self) {
        // Both fail only on a child that is gone already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The total of callgrind's counts, less what calls of the cron cost with all that they called: after the line with the
/// function's name come the number of calls and then a place and the cost.
fn counted(text: &str) -> Option<u64> {
    let total: u64 = text.lines().find_map(|line| line.strip_prefix("totals: "))?.parse().ok()?;
    let mut lines = text.lines();
    let mut cron = 0;
    while lines.any(|line| line == "cfn=serverCron") {
        let cost = lines.nth(1)?.split(' ').nth(1)?;
        cron += cost.parse::<u64>().ok()?;
    }
    total.checked_sub(cron)
}

fn command(folder: &Path) -> Command {
    let counts = format!("--callgrind-out-file={}", folder.join("counts").display());
    // The server dies with us, even if we are killed.
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "valgrind", "-q", "--tool=callgrind"]);
    command.args(["--dump-before=echoCommand", "--compress-strings=no"]);
    command.args([counts.as_str(), "redis-server", "--port", "0", "--save", "", "--appendonly", "no"]);
    // What the server does besides: once a second is the least.
    command.args(["--hz", "1", "--dynamic-hz", "no", "--activerehashing", "no"]);
    command.arg("--unixsocket").arg(folder.join("socket")).arg("--dir").arg(folder);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    command
}

fn wait_until_ready(log: ChildStdout) -> io::Result<()> {
    let mut log = BufReader::new(log);
    let mut line = String::new();
    while !line.contains("ready to accept connections") {
        line.clear();
        if log.read_line(&mut line)? == 0 {
            return Err(io::Error::other("redis-server did not start; are setpriv, valgrind and redis-server there?"));
        }
    }
    // A pipe that nobody reads would stop the server.
    thread::spawn(move || io::copy(&mut log, &mut io::sink()));
    Ok(())
}
