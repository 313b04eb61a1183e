//! Which node has which slot: one server, the primary that sentinels name, or the masters of a cluster. Read when first
//! needed, again when a node says so or is lost, and from time to time.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use redis::Value;
use tokio::sync::Notify;

use super::address::{Address, Addresses, Kind};
use super::connect::{self, Access};
use super::failure::{Failure, refused, unavailable};
use super::node::Node;
use super::sentinel::Sentinels;
use super::{Config, Options};
use crate::breaker::Breaker;
use crate::clock;
use crate::error::{Error, Result};
use crate::metrics::NodeMetrics;

const SLOTS: usize = 16_384;
/// How long a failed look at the cluster answers for the calls that come after it.
const RETRY_AFTER: Duration = Duration::from_millis(100);
/// How long one node may take to tell the slots, or who it is.
const ANSWER_WITHIN: Duration = Duration::from_millis(500);
/// How often the map is read again without a reason: a node that left without a word is asked by nobody.
const REFRESH_EVERY: Duration = Duration::from_secs(30);
/// How often it is read again while it is in doubt. Sentinels are always asked so often: a primary that was replaced
/// may go on taking writes for seconds, and nobody else says so.
const DOUBT_EVERY: Duration = Duration::from_millis(250);

#[derive(Debug)]
pub(super) struct Topology {
    /// The server, or the cluster's seeds; none with sentinels.
    seeds: Vec<Address>,
    cluster: bool,
    sentinels: Option<Sentinels>,
    /// Where what servers announce is reached.
    announced: Addresses,
    access: Arc<Access>,
    options: Options,
    /// Of the store as a whole, while no node is known.
    pub(super) breaker: Arc<Breaker>,
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    nodes: HashMap<Address, Arc<Node>>,
    map: Option<Arc<Map>>,
    refreshing: bool,
    failed: Option<(Error, Instant)>,
}

#[derive(Debug)]
enum Map {
    Single(Arc<Node>),
    /// A master per slot, where there is one.
    Cluster(Vec<Option<Arc<Node>>>),
}

impl Topology {
    pub(super) fn new(config: &Config) -> Arc<Topology> {
        let (location, options) = (&config.location, config.options);
        let named: Vec<String> = location.addresses.iter().map(Address::to_string).collect();
        let (seeds, sentinels) = match &location.kind {
            Kind::Sentinel(name) => {
                let login = config.sentinel.clone();
                (Vec::new(), Some(Sentinels::new(name.clone(), &location.addresses, login, options)))
            }
            Kind::Server | Kind::Cluster => (location.addresses.clone(), None),
        };
        Arc::new(Topology {
            seeds,
            cluster: location.kind == Kind::Cluster,
            sentinels,
            announced: config.addresses.clone(),
            access: Arc::new(config.access.clone()),
            options,
            breaker: Arc::new(Breaker::new(named.join(", "), options.breaker)),
            state: Mutex::default(),
            changed: Notify::new(),
        })
    }

    /// The node of a slot, if the map is there.
    pub(super) fn known(&self, slot: impl FnOnce() -> u16) -> Option<Arc<Node>> {
        match &**self.state().map.as_ref()? {
            Map::Single(node) => Some(Arc::clone(node)),
            Map::Cluster(slots) => slots[usize::from(slot())].clone(),
        }
    }

    /// The node of a slot; the map is read first if there is none.
    pub(super) async fn route(self: &Arc<Self>, slot: u16, deadline: Instant) -> Result<Arc<Node>> {
        match &*self.map(deadline).await? {
            Map::Single(node) => Ok(Arc::clone(node)),
            Map::Cluster(slots) => slots[usize::from(slot)].clone().ok_or_else(|| {
                self.refresh();
                unavailable(&format!("no node of the cluster has slot {slot}"))
            }),
        }
    }

    /// Every node that a call may be sent to.
    pub(super) async fn nodes(self: &Arc<Self>, deadline: Instant) -> Result<Vec<Arc<Node>>> {
        match &*self.map(deadline).await? {
            Map::Single(node) => Ok(vec![Arc::clone(node)]),
            Map::Cluster(slots) => {
                let mut masters: Vec<Arc<Node>> = Vec::new();
                for node in slots.iter().flatten() {
                    if !masters.iter().any(|known| Arc::ptr_eq(known, node)) {
                        masters.push(Arc::clone(node));
                    }
                }
                Ok(masters)
            }
        }
    }

    /// The node of an address that a redirect named. An address without a host is on the node that named it.
    pub(super) fn redirected(&self, text: &str, by: &Node) -> Result<Arc<Node>> {
        // Servers write IPv6 addresses without brackets, so the last colon is the port's.
        let (host, port) = text.rsplit_once(':').ok_or_else(|| unavailable("a redirect named no port"))?;
        let port = port.parse().map_err(|_| unavailable("a redirect named no port"))?;
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let host = match (host, &by.address) {
            ("" | "?", Address::Tcp { host, .. }) => host.clone(),
            _ => host.to_owned(),
        };
        Ok(self.node(self.announced.reached(host, port)))
    }

    /// Reads the map again in the background, unless that is under way.
    pub(super) fn refresh(self: &Arc<Self>) {
        let mut state = self.state();
        if !state.refreshing {
            state.refreshing = true;
            tokio::spawn(Arc::clone(self).read());
        }
    }

    async fn map(self: &Arc<Self>, deadline: Instant) -> Result<Arc<Map>> {
        loop {
            let changed = self.changed.notified();
            {
                let state = self.state();
                match (&state.map, &state.failed) {
                    (Some(map), _) => return Ok(Arc::clone(map)),
                    (None, Some((error, until))) if clock::instant() < *until => return Err(error.clone()),
                    (None, _) => {}
                }
            }
            self.refresh();
            if tokio::time::timeout_at(deadline.into(), changed).await.is_err() {
                // Why the last attempt failed says more than that time is up.
                let failed = self.state().failed.as_ref().map(|(error, _)| error.clone());
                return Err(failed.unwrap_or_else(|| unavailable(&self.unreached())));
            }
        }
    }

    fn unreached(&self) -> String {
        let seeds: Vec<String> = self.seeds.iter().map(Address::to_string).collect();
        let who = if self.sentinels.is_some() { "the sentinels' primary".to_owned() } else { seeds.join(", ") };
        format!("{who} was not reached within the deadline")
    }

    async fn read(self: Arc<Self>) {
        let outcome = match &self.sentinels {
            Some(sentinels) => self.read_from_sentinels(sentinels).await,
            None => self.read_from_nodes().await,
        };
        let mut state = self.state();
        state.refreshing = false;
        match outcome {
            Ok(map) => {
                state.nodes.retain(|_, node| map.has(node));
                (state.map, state.failed) = (Some(Arc::new(map)), None);
            }
            Err(error) => state.failed = Some((error, clock::instant() + RETRY_AFTER)),
        }
        drop(state);
        self.changed.notify_waiters();
    }

    /// Asks one node after another, the known ones first, until one tells the map.
    async fn read_from_nodes(&self) -> Result<Map> {
        // Those that are unwell come last: each may take its time not to answer.
        let mut known: Vec<(bool, Address)> =
            self.state().nodes.values().map(|node| (!node.is_well(), node.address.clone())).collect();
        known.sort_by_key(|(unwell, _)| *unwell);
        let known: Vec<Address> = known.into_iter().map(|(_, address)| address).collect();
        let seeds = self.seeds.iter().filter(|seed| !known.contains(seed)).cloned();
        let mut outcome = Err(unavailable("the store has no address"));
        for address in known.iter().cloned().chain(seeds) {
            outcome = self.ask(&self.node(address)).await;
            if outcome.is_ok() {
                break;
            }
        }
        outcome
    }

    /// Asks the sentinels who the primary is, and the primary whether that is so. While it takes its time they are asked
    /// on, since one that hangs is what they replace.
    async fn read_from_sentinels(&self, sentinels: &Sentinels) -> Result<Map> {
        let mut named = sentinels.primary(&self.announced).await?;
        let outcome = loop {
            tokio::select! {
                outcome = self.primary_at(&named) => break outcome,
                another = self.another_than(&named, sentinels) => named = another,
            }
        };
        if outcome.is_err() {
            // It may be behind the others.
            sentinels.doubt();
        }
        outcome
    }

    async fn another_than(&self, known: &Address, sentinels: &Sentinels) -> Address {
        loop {
            tokio::time::sleep(DOUBT_EVERY).await;
            match sentinels.primary(&self.announced).await {
                Ok(named) if named != *known => return named,
                _ => {}
            }
        }
    }

    /// The node of an address that sentinels named, if it says of itself that it is a primary.
    async fn primary_at(&self, address: &Address) -> Result<Map> {
        let node = self.node(address.clone());
        let in_use = self.state().map.as_ref().is_some_and(|map| map.has(&node));
        if in_use && node.is_well() {
            return Ok(Map::Single(node));
        }
        let deadline = clock::instant() + ANSWER_WITHIN;
        let link = node.link(deadline).await?;
        if link.cluster {
            return Err(refused(&format!("the sentinels' {address} is a node of a cluster; write redis+cluster://")));
        }
        let (number, hello) = (link.number, redis::cmd("HELLO"));
        match tokio::time::timeout_at(deadline.into(), node.send(link, &hello, false)).await {
            Err(_) => {
                node.drop_link(number);
                Err(unavailable(&format!("{address} did not answer")))
            }
            Ok(Ok(hello)) if connect::is_primary(&hello) => {
                if !in_use {
                    log::info!("{address} is the primary that the sentinels name");
                }
                Ok(Map::Single(node))
            }
            Ok(Ok(_)) => Err(unavailable(&format!("the sentinels still name {address}, which is a replica"))),
            Ok(Err(Failure::Lost(error) | Failure::Refused(error))) => Err(error),
            Ok(Err(_)) => Err(unavailable(&format!("{address} did not say what it is"))),
        }
    }

    /// Whether something speaks against the map, or would say nothing if it were wrong.
    fn is_in_doubt(&self) -> bool {
        let state = self.state();
        match state.map.as_deref() {
            Some(Map::Cluster(_)) => state.nodes.values().any(|node| node.breaker.is_troubled()),
            Some(Map::Single(_)) => self.sentinels.is_some(),
            None => self.cluster || self.sentinels.is_some(),
        }
    }

    async fn ask(&self, node: &Arc<Node>) -> Result<Map> {
        let deadline = clock::instant() + ANSWER_WITHIN;
        let link = node.link(deadline).await?;
        if link.sentinel {
            let message = format!("{} is a sentinel; write redis+sentinel:// and the primary's name", node.address);
            return Err(refused(&message));
        }
        if !link.cluster && !self.cluster {
            return Ok(Map::Single(Arc::clone(node)));
        }
        let (number, mut command) = (link.number, redis::cmd("CLUSTER"));
        command.arg("SLOTS");
        let reply = tokio::time::timeout_at(deadline.into(), node.send(link, &command, false)).await;
        match reply {
            Err(_) => {
                // From now on it is asked last.
                node.drop_link(number);
                Err(unavailable(&format!("{} did not tell its slots", node.address)))
            }
            Ok(Err(Failure::Lost(error) | Failure::Refused(error))) => Err(error),
            Ok(Err(_)) => Err(unavailable(&format!("{} answered its slots with a redirect", node.address))),
            Ok(Ok(reply)) => self.read_slots(&reply, node),
        }
    }

    /// Ranges of slots, each with its master first: `[[from, to, [host, port, ...], ...], ...]`.
    fn read_slots(&self, reply: &Value, by: &Node) -> Result<Map> {
        let garbled = || unavailable(&format!("{} told slots that make no sense", by.address));
        let mut slots: Vec<Option<Arc<Node>>> = vec![None; SLOTS];
        let Value::Array(ranges) = reply else { return Err(garbled()) };
        for range in ranges {
            let Value::Array(range) = range else { return Err(garbled()) };
            let [Value::Int(from), Value::Int(to), Value::Array(master), ..] = &range[..] else {
                return Err(garbled());
            };
            let (from, to) = (usize::try_from(*from), usize::try_from(*to));
            let (Ok(from), Ok(to @ ..SLOTS)) = (from, to) else { return Err(garbled()) };
            let (host, port) = announced(master, &by.address).ok_or_else(garbled)?;
            let node = self.node(self.announced.reached(host, port));
            for slot in slots.iter_mut().take(to + 1).skip(from) {
                *slot = Some(Arc::clone(&node));
            }
        }
        if slots.iter().all(Option::is_none) {
            return Err(unavailable(&format!("{} knows no slots; the cluster is not set up", by.address)));
        }
        Ok(Map::Cluster(slots))
    }

    /// How the known nodes stand, by address.
    pub(super) fn metrics(&self) -> Vec<NodeMetrics> {
        let (found, nodes) = {
            let state = self.state();
            (state.map.is_some(), state.nodes.values().cloned().collect::<Vec<Arc<Node>>>())
        };
        if !found {
            // Nobody was reached yet, and the store's own breaker is the one that calls meet.
            let (breaker, opened) = self.breaker.read();
            return vec![NodeMetrics { address: self.breaker.of.clone(), connected: false, breaker, opened }];
        }
        let mut metrics: Vec<NodeMetrics> = nodes.iter().map(|node| node.metrics()).collect();
        metrics.sort_unstable_by(|a, b| a.address.cmp(&b.address));
        metrics
    }

    fn node(&self, address: Address) -> Arc<Node> {
        let mut state = self.state();
        let (access, options) = (&self.access, self.options);
        let node = state.nodes.entry(address);
        let node = node.or_insert_with_key(|address| Node::new(address.clone(), Arc::clone(access), options));
        Arc::clone(node)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Map {
    fn has(&self, node: &Arc<Node>) -> bool {
        match self {
            Map::Single(single) => Arc::ptr_eq(single, node),
            Map::Cluster(slots) => slots.iter().flatten().any(|master| Arc::ptr_eq(master, node)),
        }
    }
}

/// Reads the map again from time to time, for as long as anybody has the topology.
pub(super) async fn keep_up(topology: Weak<Topology>) {
    let mut next = clock::instant() + REFRESH_EVERY;
    loop {
        tokio::time::sleep(DOUBT_EVERY).await;
        let Some(topology) = topology.upgrade() else { return };
        let now = clock::instant();
        if now >= next || topology.is_in_doubt() {
            next = now + REFRESH_EVERY;
            topology.refresh();
        }
    }
}

/// The address that a node has in CLUSTER SLOTS; one that does not know its own name leaves it out, and is the one that was
/// asked.
pub(super) fn announced(node: &[Value], by: &Address) -> Option<(String, u16)> {
    let [host, Value::Int(port), ..] = node else { return None };
    let host: String = redis::from_redis_value_ref::<Option<String>>(host).ok()?.unwrap_or_default();
    let host = match (&host[..], by) {
        ("" | "?", Address::Tcp { host, .. }) => host.clone(),
        _ => host,
    };
    Some((host, u16::try_from(*port).ok()?))
}

#[cfg(test)]
mod tests {
    use super::super::address::Location;
    use super::*;

    #[test]
    fn redirects_name_nodes_in_all_the_ways_of_servers() {
        let location = Location::parse("redis+cluster://seed:7000").expect("a url");
        let options = Options { breaker: crate::breaker::Bounds::default(), batch_across_slots: true };
        let by = Node::new(location.addresses[0].clone(), Arc::default(), options);
        let (mut addresses, access) = (Addresses::default(), Access::default());
        addresses.add("10.0.0.9:7001", "127.0.0.1:1").expect("it can be meant");
        let (prefix, deny_cache_max, sentinel) = ("t".into(), Duration::ZERO, Access::default());
        let topology =
            Topology::new(&Config { location, access, sentinel, addresses, prefix, deny_cache_max, options });
        let named = |text: &str| topology.redirected(text, &by).map(|node| node.address.to_string()).ok();
        for (text, address) in [
            ("10.0.0.1:7001", "10.0.0.1:7001"),
            ("node-b.example:7002", "node-b.example:7002"),
            ("::1:7003", "[::1]:7003"),
            ("[fe80::2]:7004", "[fe80::2]:7004"),
            (":7005", "seed:7005"),
            ("?:7006", "seed:7006"),
            ("10.0.0.9:7001", "127.0.0.1:1"),
        ] {
            assert_eq!(named(text).as_deref(), Some(address), "{text}");
        }
        assert_eq!((named("nowhere"), named("host:port")), (None, None));
    }
}
