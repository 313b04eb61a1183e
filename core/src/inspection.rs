//! What can be found out about a store's servers: facts, without a judgement.

use std::time::Duration;

use crate::error::Result;

/// What [`Builder::inspect`](crate::Builder::inspect) found out about a store's servers, without judging it. What a
/// server would not tell is an error that says why.
#[non_exhaustive]
#[derive(Debug, Clone)]
pub struct Inspection {
    /// What every stored key begins with.
    pub prefix: String,
    /// How long a call may take before its rule's `on_error` decides.
    pub deadline: Duration,
    /// Whether checks of several slots may leave together, as configured.
    pub batch_across_slots: bool,
    /// The cluster, as one of its nodes told it; none where the store is a server alone, or nobody was reached.
    pub cluster: Option<Result<ClusterInspection>>,
    /// The server, or every node of the cluster, and the URL's addresses that could not be reached.
    pub nodes: Vec<NodeInspection>,
}

/// A cluster, as one of its nodes sees it.
#[non_exhaustive]
#[derive(Debug, Clone)]
pub struct ClusterInspection {
    /// The address of the node that was asked.
    pub told_by: String,
    /// Whether the URL says that it is a cluster.
    pub in_url: bool,
    /// Its primaries, each with its slots and replicas.
    pub shards: Vec<ShardInspection>,
    /// `cluster_state` of CLUSTER INFO: `ok` or `fail`.
    pub state: Result<String>,
    /// The addresses of the nodes that CLUSTER NODES calls failing.
    pub failing: Result<Vec<String>>,
}

/// A primary of a cluster and what belongs to it.
#[non_exhaustive]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShardInspection {
    /// Its address.
    pub primary: String,
    /// The addresses of its replicas, of those that are in step with it.
    pub replicas: Vec<String>,
    /// How many of the 16,384 slots are its own.
    pub slots: usize,
}

/// One node of a store.
#[non_exhaustive]
#[derive(Debug, Clone)]
pub struct NodeInspection {
    /// `host:port`, or the path of a socket.
    pub address: String,
    /// Why it was asked.
    pub place: Place,
    /// What it told, or why it could not be reached or refused the login.
    pub server: Result<ServerInspection>,
}

/// The place of a node in its store.
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Place {
    /// The server that the URL names.
    Alone,
    /// A primary, by the cluster's map.
    Primary,
    /// A replica, by the cluster's map.
    Replica,
    /// An address of the URL that was not reached, and is not in the cluster's map.
    Seed,
}

impl Place {
    /// `alone`, `primary`, `replica` or `seed`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Place::Alone => "alone",
            Place::Primary => "primary",
            Place::Replica => "replica",
            Place::Seed => "seed",
        }
    }
}

/// What a server told about itself.
#[non_exhaustive]
#[derive(Debug, Clone)]
pub struct ServerInspection {
    /// `redis`, `valkey`, or whatever it calls itself.
    pub name: String,
    /// Such as `7.0.15`.
    pub version: String,
    /// Whether it is a replica now, and takes no writes.
    pub is_replica: bool,
    /// The address of its primary, where it is a replica and tells.
    pub primary: Option<String>,
    /// The user of its ACL that we are.
    pub user: String,
    /// What the user lacks of the least that Tidegate needs, in the words of an ACL: `+rpush`, `~tidegate:*`.
    pub lacks: Result<Vec<String>>,
    /// Whether a check by each algorithm was decided. Not tried on replicas of a cluster.
    pub check: Option<Result<()>>,
    /// Its memory, from INFO or CONFIG GET.
    pub memory: Result<MemoryInspection>,
    /// Its clock.
    pub clock: Result<ClockInspection>,
    /// How long small commands took, one after another.
    pub round_trip: Result<RoundTrip>,
    /// Whether it runs the script over keys of several of its slots. Not tried where there are no slots.
    pub batch: Option<Result<()>>,
}

/// How a server keeps its memory.
#[non_exhaustive]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryInspection {
    /// `maxmemory-policy`.
    pub policy: String,
    /// `maxmemory` in bytes; 0 for no bound.
    pub max: u64,
    /// The bytes in use, where it tells.
    pub used: Option<u64>,
}

/// A server's clock beside this machine's.
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockInspection {
    /// By how many microseconds it is ahead; negative where it is behind.
    pub ahead: i64,
    /// How exact that is: half of the round trip, and a little.
    pub within: Duration,
}

/// Some round trips, one after another.
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RoundTrip {
    /// How many there were.
    pub count: usize,
    /// The one in the middle.
    pub median: Duration,
    /// The longest.
    pub worst: Duration,
}
