//! Processes that fork (P1): a limiter that was used works in the parent and in its children, each with its own I/O
//! thread and its own connections, and nobody hangs.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tidegate_tests::limiters::timed;
use tidegate_tests::servers::{Cluster, Server, eventually};

/// Far longer than any of this takes: who is not done by then hangs.
const LIMIT: Duration = Duration::from_secs(120);

/// A process and all that it forks, in a group of their own.
struct Forker {
    process: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
}

impl Forker {
    fn start(arguments: &[&str]) -> Forker {
        let mut command = Command::new(env!("CARGO_BIN_EXE_forker"));
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0);
        let mut process = command.spawn().expect("the forker can be run");
        let (stdin, stdout) = (process.stdin.take(), process.stdout.take().expect("it is piped"));
        let (sender, lines) = mpsc::channel();
        // Ends when the last of the processes has closed the pipe.
        thread::spawn(move || {
            BufReader::new(stdout).lines().map_while(Result::ok).for_each(|line| drop(sender.send(line)));
        });
        Forker { process, stdin, lines }
    }

    #[track_caller]
    fn line(&mut self) -> String {
        self.lines.recv_timeout(LIMIT).expect("it says something, and in time")
    }

    /// Lets whoever waits for a word go on.
    fn go_on(&mut self) {
        use std::io::Write as _;
        self.stdin.as_mut().expect("it is open").write_all(b"\n").expect("it reads");
    }

    /// What is said until all processes have ended, and that the first of them has ended well.
    #[track_caller]
    fn rest(mut self) -> Vec<String> {
        drop(self.stdin.take());
        let mut said = Vec::new();
        let end = loop {
            match self.lines.recv_timeout(LIMIT) {
                Ok(line) => said.push(line),
                Err(end) => break end,
            }
        };
        assert_eq!(end, RecvTimeoutError::Disconnected, "a process hangs; until then they said {said:?}");
        let status = self.process.wait().expect("it is our child");
        assert!(status.success(), "{status}");
        said
    }
}

impl Drop for Forker {
    fn drop(&mut self) {
        if let Ok(None) = self.process.try_wait() {
            let group = i32::try_from(self.process.id()).ok().and_then(Pid::from_raw);
            let _ = kill_process_group(group.expect("it has a number"), Signal::KILL);
            let _ = self.process.wait();
        }
    }
}

fn sum(said: &[String]) -> usize {
    said.iter().map(|line| line.parse::<usize>().expect("a number")).sum()
}

/// The connections that limiters have to a server.
fn connections(server: &Server) -> BTreeSet<String> {
    let clients: String = server.call("CLIENT LIST");
    let ours = clients.lines().filter(|client| client.contains(" name=tidegate "));
    ours.filter_map(|client| client.split(' ').next().map(str::to_owned)).collect()
}

#[track_caller]
fn family(url: &str, servers: &[&Server], depth: usize) {
    let (processes, calls) = (5 + 4 * depth, 60);
    // More calls than the limit, and fewer than that without any one of the processes' share of them.
    let mut forker = Forker::start(&["family", url, "family", "311", &calls.to_string(), &depth.to_string()]);
    let said: Vec<String> = (0..processes).map(|_| forker.line()).collect();
    assert_eq!(sum(&said), 311, "{said:?}");
    for server in servers {
        eventually(LIMIT, || connections(server).len() == processes);
    }
    assert!(forker.rest().is_empty());
}

#[test]
fn p1_four_children_and_their_parent_share_a_limit_over_connections_of_their_own() {
    let server = Server::start();
    family(&server.url(), &[&server], 0);
}

#[test]
fn p1_so_do_grandchildren() {
    let server = Server::start();
    family(&server.url(), &[&server], 2);
}

#[test]
fn p1_so_do_processes_on_a_cluster() {
    let cluster = Cluster::start();
    family(&cluster.url(), &cluster.masters(), 1);
}

#[test]
fn p1_a_child_that_drops_the_limiter_leaves_its_parents_connection_alone() {
    let server = Server::start();
    let mut forker = Forker::start(&["leave", &server.url(), "leave"]);
    assert_eq!(forker.line(), "ready");
    let before = connections(&server);
    assert_eq!(before.len(), 1);
    forker.go_on();
    assert_eq!(forker.line(), "done");
    eventually(LIMIT, || connections(&server) == before);
    assert!(forker.rest().is_empty());
}

#[test]
fn p1_fifty_forks_while_other_threads_make_calls_hang_nobody() {
    let server = Server::start();
    let said = Forker::start(&["inflight", &server.url(), "inflight", "60", "50"]).rest();
    assert_eq!((said.len(), sum(&said)), (51, 60), "{said:?}");
}

#[test]
fn p1_fifty_forks_while_other_threads_make_calls_on_a_cluster_hang_nobody() {
    let cluster = Cluster::start();
    let said = Forker::start(&["inflight", &cluster.url(), "inflight", "60", "50"]).rest();
    assert_eq!((said.len(), sum(&said)), (51, 60), "{said:?}");
}

#[test]
fn p1_a_call_that_was_under_way_at_the_fork_is_answered_in_the_child_by_the_failure_policy() {
    let server = Server::start();
    let mut forker = Forker::start(&["halfway", &server.url(), "halfway"]);
    assert_eq!(forker.line(), "ready");
    server.pause();
    forker.go_on();
    let (said, took) = timed(|| forker.line());
    server.resume();
    assert_eq!((said.as_str(), forker.rest()), ("answered", vec!["done".to_owned(), "done".to_owned()]));
    assert!(took < Duration::from_secs(10), "it does not even wait for the deadline of 20 s: {took:?}");
}

#[test]
fn p1_completions_of_the_parents_calls_do_not_come_in_the_child() {
    let server = Server::start();
    assert_eq!(Forker::start(&["queue", &server.url(), "queue"]).rest(), ["done", "done"]);
}

#[test]
fn p1_a_limiter_in_memory_is_copied_and_receipts_numbers_are_not() {
    let said = Forker::start(&["memory"]).rest();
    assert_eq!(said.len(), 5);
    assert_eq!(said.iter().collect::<BTreeSet<_>>().len(), 5, "{said:?}");
}

#[test]
fn a_child_leaves_the_sockets_of_its_parents_event_loop_alone() {
    let server = Server::start();
    let mut forker = Forker::start(&["sockets", &server.url(), "sockets"]);
    assert_eq!(forker.line(), "ready");
    server.pause();
    forker.go_on();
    assert_eq!(forker.line(), "left");
    server.resume();
    forker.go_on();
    assert_eq!(forker.line(), "answered");
    assert!(forker.rest().is_empty());
}
