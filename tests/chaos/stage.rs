//! A cluster under load: six nodes, some client processes, and what they leave behind.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;
use tidegate::{Document, Limiter, Origin};
use tidegate_tests::servers::{Cluster, Server};

use crate::checker::Evidence;
use crate::client::READY;
use crate::net::Net;
use crate::record::{History, pause};
use crate::rules::{AUDIT, LEDGER, LEDGER_LIMIT, document};

/// How long a client may take to end once its input has: no call of it takes that long.
const END_LIMIT: Duration = Duration::from_secs(15);
/// For what is asked when all is over.
const PATIENCE: Duration = Duration::from_secs(10);
/// With which the default user begins where a scenario is about passwords.
const FIRST_PASSWORD: &str = "the-first";

#[derive(Debug)]
pub(crate) struct Stage {
    // Clients end first.
    clients: Vec<Client>,
    pub(crate) cluster: Cluster,
    net: Option<Net>,
    /// Which of the masters is the victim.
    victim: usize,
    folder: TempDir,
}

impl Stage {
    /// Starts everything, and returns when every client is connected.
    pub(crate) fn set(clients: usize, victim: usize, network: bool, password: bool) -> Stage {
        let builder = Server::builder();
        let builder = if password { builder.password(FIRST_PASSWORD) } else { builder };
        let net = network.then(Net::make);
        let cluster = if network { builder.start_cluster_on(&Net::hosts()) } else { builder.start_cluster() };
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        let mut stage = Stage { clients: Vec::new(), cluster, net, victim, folder };
        stage.write_password(FIRST_PASSWORD);
        let (url, file) = (stage.cluster.url(), stage.password_file());
        let file = file.to_str().expect("temporary folders have plain names");
        let text = document(&url, "chaos", password.then_some(file), clients);
        fs::write(stage.document(), text).expect("our own folder can be written to");
        stage.clients =
            (0..clients).map(|client| Client::start(&stage.document(), stage.folder.path(), client)).collect();
        stage.clients.iter_mut().for_each(Client::await_ready);
        stage
    }

    /// The index of the master that the fault happens to.
    pub(crate) fn victim_index(&self) -> usize {
        self.victim
    }

    pub(crate) fn victim(&self) -> &Server {
        self.cluster.node(self.victim)
    }

    /// The network of a scenario that has one.
    pub(crate) fn net(&self) -> &Net {
        self.net.as_ref().expect("the scenario says that it needs one")
    }

    pub(crate) fn write_password(&self, password: &str) {
        fs::write(self.password_file(), password).expect("our own folder can be written to");
    }

    fn password_file(&self) -> PathBuf {
        self.folder.path().join("password")
    }

    fn document(&self) -> PathBuf {
        self.folder.path().join("rules.toml")
    }

    /// Ends the load, and gathers what clients and servers know; what is wrong already comes second.
    pub(crate) fn strike(mut self) -> (Evidence, Vec<String>) {
        let mut problems = Vec::new();
        self.clients.iter_mut().for_each(|client| drop(client.child.stdin.take()));
        let ended: Vec<_> = self.clients.drain(..).map(|client| client.end(self.folder.path())).collect();
        let mut evidence = Evidence::default();
        for history in ended {
            match history {
                Ok(history) => evidence.clients.push(history),
                Err(problem) => problems.push(problem),
            }
        }
        if let Err(error) = self.look(&mut evidence) {
            problems.push(format!("what is kept cannot be looked at: {error}"));
        }
        let eternal = self.cluster.keys_without_ttl();
        if let Some(key) = eternal.first() {
            let key = String::from_utf8_lossy(key);
            problems.push(format!("{} keys have no TTL, the first of them {key}", eternal.len()));
        }
        (evidence, problems)
    }

    /// What the store keeps of the keys that are there to be counted.
    fn look(&self, evidence: &mut Evidence) -> tidegate::Result<()> {
        let document = Document::read(self.document())?;
        // The environment may name another store, and would win over the document.
        let limiter = Limiter::builder().document(&document).url(&self.cluster.url()).deadline(PATIENCE).build()?;
        limiter.ready(PATIENCE).wait()?;
        let mut keys = BTreeMap::<&str, &str>::new();
        for call in evidence.clients.iter().flat_map(|client| &client.calls) {
            keys.insert(&call.key, &call.rule);
        }
        for (key, rule) in keys {
            if rule == LEDGER {
                let standing = limiter.peek(rule, key).wait()?;
                if standing.origin() == Origin::Store {
                    evidence.ledger.insert(key.to_owned(), (LEDGER_LIMIT - standing.remaining()).into());
                }
            } else if rule == AUDIT {
                let log = limiter.log(rule, key).wait()?.into_iter();
                let named = |id: Option<Vec<u8>>| String::from_utf8_lossy(&id.unwrap_or_default()).into_owned();
                evidence.audit.insert(key.to_owned(), log.map(|entry| (named(entry.id), entry.units)).collect());
            }
        }
        Ok(())
    }
}

/// A client process; killed if it is dropped before its end.
#[derive(Debug)]
struct Client {
    number: usize,
    child: Child,
}

impl Client {
    fn start(document: &Path, folder: &Path, number: usize) -> Client {
        let said = File::create(said(folder, number)).expect("our own folder can be written to");
        let mut command = Command::new(std::env::current_exe().expect("this program has a file"));
        command.arg("client").args([document, &out(folder, number)]).arg(number.to_string());
        // The document alone says where the servers are.
        command.env_remove("TIDEGATE_URL").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(said);
        Client { number, child: command.spawn().expect("this program can be run") }
    }

    fn await_ready(&mut self) {
        let stdout = self.child.stdout.take().expect("it is piped, and taken once");
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line).expect("a pipe can be read");
        assert_eq!(line.trim(), READY, "client {} did not connect", self.number);
    }

    /// Its history, once its input has ended.
    fn end(mut self, folder: &Path) -> Result<History, String> {
        let number = self.number;
        const LOOK: Duration = Duration::from_millis(20);
        let mut status = None;
        for _ in 0..END_LIMIT.as_millis() / LOOK.as_millis() {
            status = self.child.try_wait().expect("our own child, reaped nowhere else");
            if status.is_some() {
                break;
            }
            pause(LOOK);
        }
        let said = fs::read_to_string(said(folder, number)).unwrap_or_default();
        match status {
            None => return Err(format!("client {number} hangs")),
            Some(status) if !status.success() => return Err(format!("client {number} died ({status}): {said}")),
            Some(_) if !said.is_empty() => return Err(format!("client {number} complained: {said}")),
            Some(_) => {}
        }
        let text = fs::read_to_string(out(folder, number)).map_err(|error| format!("client {number}: {error}"))?;
        History::parse(&text).map_err(|error| format!("client {number}: {error}"))
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // Both fail only on a child that is gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn out(folder: &Path, client: usize) -> PathBuf {
    folder.join(format!("history{client}"))
}

fn said(folder: &Path, client: usize) -> PathBuf {
    folder.join(format!("said{client}"))
}
