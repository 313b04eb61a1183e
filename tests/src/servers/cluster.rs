//! A cluster of six real nodes, put together without redis-cli.

use std::ops::RangeInclusive;
use std::time::Duration;

use redis::RedisResult;

use super::process::BUS;
use super::{ADMIN, Server, keys_without_ttl, poll};

/// How many hash slots a cluster has.
const SLOTS: u16 = 16_384;
/// How many of the nodes begin as masters: the first ones; those after them are their replicas, in the same order.
const MASTERS: usize = 3;
/// How long the nodes may take to agree.
const AGREE_LIMIT: Duration = Duration::from_secs(30);

/// Three masters and a replica for each, all on loopback.
#[derive(Debug)]
pub struct Cluster {
    nodes: Vec<Server>,
    /// The name that each node has in the cluster, in the order of `nodes`; it survives a restart.
    ids: Vec<String>,
}

impl Cluster {
    /// A cluster without password or TLS. For another kind see [`Builder::start_cluster`](super::Builder).
    pub fn start() -> Self {
        Server::builder().start_cluster()
    }

    pub(super) fn form(nodes: Vec<Server>) -> Self {
        // Epochs can be set only while a node is alone. Distinct from the start, they need not be fought out later.
        for (epoch, node) in (1..).zip(&nodes) {
            node.call::<()>(&format!("CLUSTER SET-CONFIG-EPOCH {epoch}"));
        }
        let (masters, replicas) = nodes.split_at(MASTERS);
        let share = usize::from(SLOTS).div_ceil(MASTERS);
        for (i, master) in masters.iter().enumerate() {
            let last = usize::from(SLOTS).min((i + 1) * share) - 1;
            master.call::<()>(&format!("CLUSTER ADDSLOTSRANGE {} {last}", i * share));
        }
        // Each meets each: gossip alone would find them too, but takes seconds.
        for (i, node) in nodes.iter().enumerate() {
            for other in &nodes[i + 1..] {
                let (address, port) = (other.address(), other.port());
                node.call::<()>(&format!("CLUSTER MEET {address} {port} {}", port + BUS));
            }
        }
        let ids: Vec<String> = nodes.iter().map(|node| node.call("CLUSTER MYID")).collect();
        for (replica, id) in replicas.iter().zip(&ids) {
            // Refused until the replica has heard of its master.
            poll(AGREE_LIMIT, || replica.try_call::<()>(&format!("CLUSTER REPLICATE {id}")).ok())
                .expect("nodes on one machine hear of each other");
        }
        let cluster = Self { nodes, ids };
        cluster.settle();
        cluster
    }

    /// `redis+cluster://127.0.0.1:P1,127.0.0.1:P2,...` with all nodes; `rediss+cluster` for TLS, and with the password
    /// if the default user has one.
    pub fn url(&self) -> String {
        let mut url = self.nodes[0].url().replacen("://", "+cluster://", 1);
        for node in &self.nodes[1..] {
            url += &format!(",{}:{}", node.address(), node.port());
        }
        url
    }

    /// All six, in an order that never changes: the first three began as masters.
    pub fn nodes(&self) -> &[Server] {
        &self.nodes
    }

    /// One of [`Cluster::nodes`].
    pub fn node(&self, index: usize) -> &Server {
        &self.nodes[index]
    }

    /// The nodes that own slots now, in the order of [`Cluster::nodes`].
    ///
    /// Like all methods that look at the cluster, it believes the running node with the newest knowledge. A master that
    /// died counts until another has taken its place.
    pub fn masters(&self) -> Vec<&Server> {
        let view = self.view();
        let owns_slots = |id: &str| view.iter().any(|peer| peer.id == id && !peer.slots.is_empty());
        self.nodes.iter().zip(&self.ids).filter(|(_, id)| owns_slots(id)).map(|(node, _)| node).collect()
    }

    /// The node that owns `slot` now.
    pub fn master_of(&self, slot: u16) -> &Server {
        let view = self.view();
        let owner = view.iter().find(|peer| peer.slots.iter().any(|range| range.contains(&slot)));
        self.by_id(&owner.expect("a formed cluster has an owner for every slot").id)
    }

    /// The slots that `node` owns now.
    pub fn slots_of(&self, node: &Server) -> Vec<RangeInclusive<u16>> {
        let id = self.id(node);
        self.view().into_iter().find(|peer| peer.id == id).map(|peer| peer.slots).unwrap_or_default()
    }

    /// The replica of `master` now.
    pub fn replica_of(&self, master: &Server) -> &Server {
        let view = self.view();
        let replica = view.iter().find(|peer| peer.master.as_deref() == Some(self.id(master)));
        self.by_id(&replica.expect("the node is a master and has its replica").id)
    }

    /// Tells both sides that `slot` moves from its master to `to`, and moves nothing. From now on the old master sends
    /// clients to `to` (ASK) for a key that it lacks. [`Cluster::move_slot`] finishes it.
    pub fn begin_move(&self, slot: u16, to: &Server) {
        let from = self.master_of(slot);
        to.call::<()>(&format!("CLUSTER SETSLOT {slot} IMPORTING {}", self.id(from)));
        from.call::<()>(&format!("CLUSTER SETSLOT {slot} MIGRATING {}", self.id(to)));
    }

    /// Moves one key to `to`, within a move that was begun.
    pub fn move_key(&self, key: &[u8], to: &Server) {
        migrate(self.master_of(slot(key)), to, &[key.to_vec()]);
    }

    /// Moves `slot` and its keys to the master `to`, and returns when every node knows.
    pub fn move_slot(&self, slot: u16, to: &Server) {
        let from = self.master_of(slot);
        if self.id(from) == self.id(to) {
            return;
        }
        self.begin_move(slot, to);
        loop {
            let keys: Vec<Vec<u8>> = from.call(&format!("CLUSTER GETKEYSINSLOT {slot} 100"));
            if keys.is_empty() {
                break;
            }
            migrate(from, to, &keys);
        }
        // First to the new owner: were it to fail in between, no node would own the slot.
        let others = self.masters().into_iter().filter(|node| node.is_running() && node.port() != to.port());
        let order = format!("CLUSTER SETSLOT {slot} NODE {}", self.id(to));
        to.call::<()>(&order);
        // Valkey makes a replica of a master that has lost its last slot, and then will not be told.
        others.for_each(|node| drop(node.try_call::<()>(&order)));
        self.settle();
    }

    /// Lets `replica` and its master change places without losing a write, and returns when every node knows.
    pub fn failover(&self, replica: &Server) {
        replica.call::<()>("CLUSTER FAILOVER");
        poll(AGREE_LIMIT, || self.masters().iter().any(|master| master.port() == replica.port()).then_some(()))
            .expect("a replica whose master is well can take its place");
        self.settle();
    }

    /// Makes a master without slots of a replica, and returns when every node knows.
    pub fn detach(&self, replica: &Server) {
        replica.call::<()>("CLUSTER RESET SOFT");
        for other in self.nodes.iter().filter(|node| node.port() != replica.port()) {
            let (address, port) = (other.address(), other.port());
            replica.call::<()>(&format!("CLUSTER MEET {address} {port} {}", port + BUS));
        }
        self.settle();
    }

    /// Makes a master without slots a replica again, and returns when every node knows.
    pub fn attach(&self, replica: &Server, master: &Server) {
        replica.call::<()>(&format!("CLUSTER REPLICATE {}", self.id(master)));
        self.settle();
    }

    /// Waits until all nodes that run agree on who is who and owns what, find each other well, and call the cluster ok.
    #[track_caller]
    pub fn settle(&self) {
        let mut complaint = None;
        let settled = poll(AGREE_LIMIT, || {
            complaint = self.complaint().unwrap_or_else(|error| Some(error.to_string()));
            complaint.is_none().then_some(())
        });
        assert!(settled.is_some(), "the nodes do not agree after {AGREE_LIMIT:?}: {}", complaint.unwrap_or_default());
    }

    /// Removes every key.
    pub fn flush(&self) {
        for master in self.masters() {
            master.flush();
        }
    }

    /// The keys of all masters that would stay for ever. Not while a slot is half moved: its keys answer to no one node.
    pub fn keys_without_ttl(&self) -> Vec<Vec<u8>> {
        self.masters().iter().flat_map(|master| keys_without_ttl(&mut master.connection())).collect()
    }

    /// The name that `node` has in the cluster.
    pub fn id(&self, node: &Server) -> &str {
        let index = self.nodes.iter().position(|own| own.port() == node.port());
        &self.ids[index.expect("the node is one of this cluster")]
    }

    fn by_id(&self, id: &str) -> &Server {
        let index = self.ids.iter().position(|own| own == id);
        &self.nodes[index.expect("a cluster has no nodes but its own")]
    }

    fn running(&self) -> impl Iterator<Item = &Server> {
        self.nodes.iter().filter(|node| node.is_running())
    }

    /// The cluster as the running node with the newest knowledge sees it.
    fn view(&self) -> Vec<Peer> {
        let views = self.running().filter_map(|node| peers(node).ok());
        let newest = views.max_by_key(|view| view.iter().map(|peer| peer.epoch).max());
        newest.expect("at least one node of the cluster runs")
    }

    /// What is still wrong in the eyes of some running node; nothing if all is well.
    fn complaint(&self) -> RedisResult<Option<String>> {
        let mut agreed = None;
        for node in self.running() {
            let port = node.port();
            let info: String = node.try_call("CLUSTER INFO")?;
            if !info.contains("cluster_state:ok") {
                return Ok(Some(format!("{port} says {info}")));
            }
            let view = peers(node)?;
            // A node that has not shaken hands yet stands in the list under a name of the other's invention.
            if view.len() != self.nodes.len() || view.iter().any(|peer| !self.ids.contains(&peer.id)) {
                return Ok(Some(format!("{port} knows {view:?}")));
            }
            if let Some(lost) = view.iter().find(|peer| !peer.well && self.by_id(&peer.id).is_running()) {
                return Ok(Some(format!("{port} has lost {lost:?}")));
            }
            let master = view.iter().find(|peer| peer.id == self.id(node)).and_then(|own| own.master.as_deref());
            if master.is_some_and(|id| self.by_id(id).is_running())
                && !node.try_call::<String>("INFO replication")?.contains("master_link_status:up")
            {
                return Ok(Some(format!("{port} is not linked to its master")));
            }
            let roles: Vec<_> = view.into_iter().map(|peer| (peer.id, peer.master, peer.slots)).collect();
            if *agreed.get_or_insert_with(|| roles.clone()) != roles {
                return Ok(Some(format!("{port} sees {roles:?}, and a node before it {agreed:?}")));
            }
        }
        Ok(None)
    }
}

/// A node, as another (or itself) sees it.
#[derive(Debug)]
struct Peer {
    id: String,
    master: Option<String>,
    /// Linked, and neither failing nor still shaking hands.
    well: bool,
    epoch: u64,
    slots: Vec<RangeInclusive<u16>>,
}

impl Peer {
    /// Reads a line of CLUSTER NODES: id, address, flags, master, ping, pong, epoch, link, then the slots.
    fn parse(line: &str) -> Option<Self> {
        let mut words = line.split_whitespace();
        let (id, _address, flags, master) = (words.next()?, words.next()?, words.next()?, words.next()?);
        let (_ping, _pong, epoch, link) = (words.next()?, words.next()?, words.next()?, words.next()?);
        let well = link == "connected"
            && flags.split(',').all(|flag| !["fail", "fail?", "handshake", "noaddr"].contains(&flag));
        // A slot on the move is in brackets, in addition to the owner's range.
        let slots = words.filter(|word| !word.starts_with('[')).map(|word| {
            let (first, last) = word.split_once('-').unwrap_or((word, word));
            Some(first.parse().ok()?..=last.parse().ok()?)
        });
        Some(Self {
            id: id.to_owned(),
            master: (master != "-").then(|| master.to_owned()),
            well,
            epoch: epoch.parse().ok()?,
            slots: slots.collect::<Option<_>>()?,
        })
    }
}

/// The cluster as `node` sees it, in the order of the names.
fn peers(node: &Server) -> RedisResult<Vec<Peer>> {
    let text: String = node.try_call("CLUSTER NODES")?;
    let parsed: Option<Vec<Peer>> = text.lines().map(Peer::parse).collect();
    let mut peers = parsed.expect("every server writes the same eight words and then slots");
    peers.sort_by(|a, b| a.id.cmp(&b.id));
    Ok(peers)
}

fn migrate(from: &Server, to: &Server, keys: &[Vec<u8>]) {
    let mut migrate = redis::cmd("MIGRATE");
    migrate.arg(to.address()).arg(to.port()).arg("").arg(0).arg(5_000);
    migrate.arg("AUTH2").arg(ADMIN).arg(ADMIN).arg("KEYS").arg(keys);
    migrate.exec(&mut from.connection()).expect("two nodes of one cluster can pass keys on");
}

/// The hash slot of a key: CRC16 of what stands between its first `{` and the next `}`, or of all if that is nothing.
pub fn slot(key: &[u8]) -> u16 {
    let tag = key.iter().position(|&byte| byte == b'{').and_then(|open| {
        let rest = &key[open + 1..];
        let close = rest.iter().position(|&byte| byte == b'}')?;
        (close > 0).then(|| &rest[..close])
    });
    let crc = tag.unwrap_or(key).iter().fold(0_u16, |crc, &byte| {
        (0..8).fold(crc ^ (u16::from(byte) << 8), |crc, _| (crc << 1) ^ if crc & 0x8000 == 0 { 0 } else { 0x1021 })
    });
    crc % SLOTS
}
