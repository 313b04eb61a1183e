//! A store on which one case after the other is played, and what a test may do to it behind the limiter's back.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::{Connection, FromRedisValue};
use serde_json::{Map, Value, json};
use tidegate::http::Policy;
use tidegate::{Builder, Document, Format, Limiter, Result};
use tidegate_tests::servers::{Server, shared_cluster, shared_server, slot};

use crate::files::{Step, unhex};

/// How much longer than in production keys live on a clock that tests set.
const LEASE_MS: u64 = 3_600_000;
/// Longer than any machine is slow: a case that fails is to mean something else.
const PATIENCE: Duration = Duration::from_secs(20);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Memory,
    Redis,
    Cluster,
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Memory => "memory",
            Kind::Redis => "Redis",
            Kind::Cluster => "Redis Cluster",
        }
    }
}

/// A store that is ours alone for as long as this value lives.
pub(crate) struct Stage {
    pub(crate) kind: Kind,
    clock: Arc<AtomicU64>,
    nodes: Vec<(&'static Server, Connection)>,
    /// Keys without a TTL by the case's own doing.
    robbed: BTreeSet<Vec<u8>>,
    /// The servers' time when the case began, in milliseconds.
    began: u64,
    /// A limiter that keeps the connections open from case to case.
    kept: Option<Limiter>,
    _turn: Option<MutexGuard<'static, ()>>,
}

/// All that is stored: of each key its value, dumped, and the time of its end.
pub(crate) type Snapshot = BTreeMap<Vec<u8>, (Vec<u8>, i64)>;

impl Stage {
    /// Waits for the store's other tests, and takes it. This binary is the only user of the shared servers.
    pub(crate) fn enter(kind: Kind) -> Stage {
        static REDIS: Mutex<()> = Mutex::new(());
        static CLUSTER: Mutex<()> = Mutex::new(());
        let take = |turns: &'static Mutex<()>| Some(turns.lock().unwrap_or_else(PoisonError::into_inner));
        let (turn, servers) = match kind {
            Kind::Memory => (None, Vec::new()),
            Kind::Redis => (take(&REDIS), vec![shared_server()]),
            Kind::Cluster => (take(&CLUSTER), shared_cluster().masters()),
        };
        let nodes = servers.into_iter().map(|server| (server, server.connection())).collect();
        let clock = Arc::new(AtomicU64::new(0));
        Stage { kind, clock, nodes, robbed: BTreeSet::new(), began: 0, kept: None, _turn: turn }
    }

    /// Empties the store for the next case.
    pub(crate) fn clear(&mut self) {
        self.robbed.clear();
        for (_, connection) in &mut self.nodes {
            redis::cmd("FLUSHALL").exec(connection).expect("an administrator may flush");
        }
        self.began = self.server_time();
    }

    pub(crate) fn set_clock(&self, now: u64) {
        self.clock.store(now, Ordering::SeqCst);
    }

    pub(crate) fn now(&self) -> u64 {
        self.clock.load(Ordering::SeqCst)
    }

    /// A limiter of these rules, and of more of `[store]` if there is more.
    pub(crate) fn limiter(&mut self, rules: &Map<String, Value>, store: &Map<String, Value>) -> Result<Limiter> {
        let document = json!({"version": 1, "store": store, "rules": rules}).to_string();
        let document = Document::parse(&document, Format::Json)?;
        let limiter = self.placed(Limiter::builder().document(&document)).build()?;
        limiter.ready(PATIENCE).wait()?;
        self.kept = Some(limiter.clone());
        Ok(limiter)
    }

    fn placed(&self, builder: Builder) -> Builder {
        let builder = builder.clock(&self.clock).deadline(PATIENCE);
        let url = self.url();
        if url.is_empty() { builder } else { builder.url(&url) }
    }

    /// The store's URL; empty in memory.
    pub(crate) fn url(&self) -> String {
        match self.kind {
            Kind::Memory => String::new(),
            Kind::Redis => shared_server().url(),
            Kind::Cluster => shared_cluster().url(),
        }
    }

    /// A policy of a document that has the store's URL.
    pub(crate) fn policy(&mut self, document: &Document) -> Result<Policy> {
        let policy = Policy::with_clock(document, &self.clock)?;
        self.kept = Some(policy.limiter());
        Ok(policy)
    }

    /// Whether there are keys to look at.
    pub(crate) fn has_keys(&self) -> bool {
        !self.nodes.is_empty()
    }

    pub(crate) fn snapshot(&mut self) -> Snapshot {
        let mut snapshot = Snapshot::new();
        for (_, connection) in &mut self.nodes {
            let keys: Vec<Vec<u8>> = redis::cmd("KEYS").arg("*").query(connection).expect("the server lists");
            for key in keys {
                let mut ask = redis::pipe();
                ask.cmd("DUMP").arg(&key).cmd("PEXPIRETIME").arg(&key);
                let (dump, end): (Option<Vec<u8>>, i64) = ask.query(connection).expect("the server dumps");
                // A key may have expired since it was listed.
                snapshot.extend(dump.map(|dump| (key, (dump, end))));
            }
        }
        snapshot
    }

    /// The keys that would stay for ever, but for those that the case has robbed of their TTL (law 8).
    pub(crate) fn eternal(&mut self, snapshot: &Snapshot) -> Vec<String> {
        let has_end = |key: &Vec<u8>| snapshot.get(key).is_some_and(|(_, end)| *end >= 0);
        self.robbed.retain(|key| !has_end(key));
        let eternal = snapshot.keys().filter(|key| !has_end(key) && !self.robbed.contains(*key));
        eternal.map(|key| String::from_utf8_lossy(key).into_owned()).collect()
    }

    /// Runs a command on the node that has the key.
    pub(crate) fn command<T: FromRedisValue>(&mut self, name: &str, key: &str, arguments: &[Vec<u8>]) -> T {
        let owner = match self.kind {
            Kind::Cluster => shared_cluster().master_of(slot(key.as_bytes())).port(),
            _ => shared_server().port(),
        };
        let node = self.nodes.iter_mut().find(|(server, _)| server.port() == owner);
        let (_, connection) = node.expect("a store with keys has a node for each");
        let answer = redis::cmd(name).arg(key).arg(arguments).query(connection);
        answer.unwrap_or_else(|error| panic!("{name} {key} failed: {error}"))
    }

    /// Puts a value in place of what is there.
    pub(crate) fn plant(&mut self, key: &str, step: &Step) {
        self.command::<()>("DEL", key, &[]);
        let all = |texts: &[String]| texts.iter().map(|text| unhex(text)).collect::<Vec<_>>();
        let (command, words) = match step.r#type.as_deref() {
            Some("string") => ("SET", vec![unhex(&step.hex)]),
            Some("list") => ("RPUSH", all(&step.elements)),
            Some("set") => ("SADD", all(&step.members)),
            Some("hash") => {
                ("HSET", step.fields.iter().flat_map(|(name, value)| [unhex(name), unhex(value)]).collect())
            }
            other => panic!("no case plants {other:?}"),
        };
        self.command::<()>(command, key, &words);
        let ttl = step.ttl_ms.expect("what is planted has a TTL") + LEASE_MS;
        self.command::<()>("PEXPIRE", key, &[ttl.to_string().into_bytes()]);
    }

    /// Takes a key's TTL away.
    pub(crate) fn rob(&mut self, key: &str) {
        assert!(self.command::<bool>("PERSIST", key, &[]), "{key} has a TTL to lose");
        self.robbed.insert(key.as_bytes().to_vec());
    }

    /// The TTL that a key was given, as the least and the most that it may have been: it ran down since.
    pub(crate) fn ttl(&mut self, key: &str) -> Option<[i64; 2]> {
        let left: i64 = self.command("PTTL", key, &[]);
        let passed = (self.server_time() - self.began).cast_signed();
        let least = left - LEASE_MS.cast_signed();
        (left >= 0).then_some([least, least + passed])
    }

    /// In milliseconds. All servers are on this machine, and have one clock.
    fn server_time(&mut self) -> u64 {
        let Some((_, connection)) = self.nodes.first_mut() else { return 0 };
        let (seconds, micros): (u64, u64) = redis::cmd("TIME").query(connection).expect("the server has a clock");
        seconds * 1_000 + micros / 1_000
    }
}
