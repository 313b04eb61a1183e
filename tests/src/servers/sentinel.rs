//! Sentinels, and the servers that they watch.

use std::time::Duration;

use redis::{RedisResult, Value};

use super::{ADMIN, Builder, Server, poll};

/// How long all may take to know of each other: sentinels speak up every two seconds.
const AGREE_LIMIT: Duration = Duration::from_secs(60);

/// A primary with two replicas, and three sentinels, two of which replace it.
#[derive(Debug)]
pub struct Watched {
    servers: Vec<Server>,
    sentinels: Vec<Server>,
}

impl Builder {
    /// The lines of a sentinel that watches an address.
    pub(super) fn watching(self, address: &str, quorum: usize) -> Self {
        let name = Watched::NAME;
        self.config(&format!("sentinel monitor {name} {address} {quorum}"))
            .config(&format!("sentinel auth-user {name} {ADMIN}"))
            .config(&format!("sentinel auth-pass {name} {ADMIN}"))
            .config(&format!("sentinel down-after-milliseconds {name} 1000"))
            .config(&format!("sentinel failover-timeout {name} 3000"))
    }
}

impl Watched {
    /// Under which the sentinels know the primary.
    pub const NAME: &str = "main";

    /// Starts all six, and returns when every one of them knows of the others.
    pub fn start() -> Self {
        let primary = Server::start();
        let replica = || Server::builder().config(&format!("replicaof 127.0.0.1 {}", primary.port())).start();
        let replicas = [replica(), replica()];
        let sentinels = (0..3).map(|_| Server::builder().start_sentinel_of(&primary, 2)).collect();
        let watched = Self { servers: std::iter::once(primary).chain(replicas).collect(), sentinels };
        watched.settle();
        watched
    }

    /// `redis+sentinel://127.0.0.1:P1,127.0.0.1:P2,127.0.0.1:P3/main`.
    pub fn url(&self) -> String {
        let hosts: Vec<String> = self.sentinels.iter().map(|node| format!("127.0.0.1:{}", node.port())).collect();
        format!("redis+sentinel://{}/{}", hosts.join(","), Self::NAME)
    }

    /// The first of them began as the primary.
    pub fn servers(&self) -> &[Server] {
        &self.servers
    }

    /// The sentinels.
    pub fn sentinels(&self) -> &[Server] {
        &self.sentinels
    }

    /// Waits until the first replica calls itself a primary, and returns it.
    #[track_caller]
    pub fn promoted(&self) -> &Server {
        let is_primary = |server: &&Server| {
            let info = server.try_call::<String>("INFO replication");
            info.is_ok_and(|info| info.contains("role:master"))
        };
        let promoted = poll(AGREE_LIMIT, || self.servers[1..].iter().find(is_primary));
        let logs = || self.sentinels.iter().map(Server::log).collect::<String>();
        promoted.unwrap_or_else(|| panic!("no replica was promoted after {AGREE_LIMIT:?}:\n{}", logs()))
    }

    /// Waits until every sentinel knows of the replicas, which are linked, and of the other sentinels.
    #[track_caller]
    fn settle(&self) {
        let settled = poll(AGREE_LIMIT, || self.is_settled().unwrap_or(false).then_some(()));
        assert!(settled.is_some(), "they do not know of each other after {AGREE_LIMIT:?}");
    }

    fn is_settled(&self) -> RedisResult<bool> {
        let fields = ["flags", "master", "num-slaves", "2", "num-other-sentinels", "2"];
        for sentinel in &self.sentinels {
            let seen: Vec<Value> = sentinel.try_call(&format!("SENTINEL MASTER {}", Self::NAME))?;
            let seen: Vec<String> = redis::from_redis_value(Value::Array(seen))?;
            if !fields.chunks(2).all(|pair| seen.chunks(2).any(|field| field == pair)) {
                return Ok(false);
            }
        }
        for replica in &self.servers[1..] {
            if !replica.try_call::<String>("INFO replication")?.contains("master_link_status:up") {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
