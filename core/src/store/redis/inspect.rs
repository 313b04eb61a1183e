//! A look at every server of a store, on connections of its own and bounded in time: what they are, what they allow,
//! and whether they do what calls will ask of them.

mod cluster;
mod permissions;
mod trial;
mod visit;

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::Value;
use tokio::task::JoinHandle;

use self::visit::Visit;
use super::address::{Address, Kind};
use super::failure::unavailable;
use super::sentinel::Sentinels;
use super::{Config, timeout};
use crate::clock::{self, Clock, Look};
use crate::error::{Error, Result};
use crate::inspection::{
    ClockInspection, ClusterInspection, Inspection, MemoryInspection, NodeInspection, Place, RoundTrip,
    ServerInspection,
};

/// What is to be looked at, and by when.
#[derive(Debug)]
pub(crate) struct Inspector {
    pub(crate) config: Config,
    pub(crate) deadline: Duration,
    pub(crate) until: Instant,
}

/// The slots of a primary.
type Slots = Vec<RangeInclusive<u16>>;

/// How many round trips are measured, and for how long at the most.
const ROUND_TRIPS: usize = 20;
const MEASURED_FOR: Duration = Duration::from_secs(1);

impl Inspector {
    pub(crate) async fn inspect(self) -> Inspection {
        let inspector = Arc::new(self);
        let seeds = match inspector.seeds().await {
            Ok(seeds) => seeds,
            Err(error) => return inspector.without_primary(error),
        };
        let visits = together(&seeds, |address| {
            let (inspector, address) = (Arc::clone(&inspector), address.clone());
            async move { Visit::open(&address, &inspector.config.access, inspector.until).await }
        });
        let mut opened = Vec::new();
        for (address, visit) in visits {
            opened.push((address, finished(visit).await.and_then(|visit| visit)));
        }
        let map = inspector.map(&mut opened).await;
        let mut places = match &map {
            Some(Ok((_, places))) => places.clone(),
            _ => seeds.iter().map(|seed| (seed.clone(), Place::Alone, Slots::new())).collect(),
        };
        for (seed, visit) in opened {
            if visit.is_err() && !places.iter().any(|(address, _, _)| *address == seed) {
                places.push((seed, Place::Seed, Slots::new()));
            }
        }
        let looks = together(&places, |(address, place, slots)| {
            Arc::clone(&inspector).look(address.clone(), *place, slots.clone())
        });
        let mut nodes = Vec::new();
        for ((address, place, _), look) in looks {
            nodes.push(NodeInspection {
                address: address.to_string(),
                place,
                server: finished(look).await.and_then(|server| server),
            });
        }
        inspector.inspection(map.map(|map| map.map(|(cluster, _)| cluster)), nodes)
    }

    /// What the URL names, or the primary that its sentinels name.
    async fn seeds(&self) -> Result<Vec<Address>> {
        let Config { location, sentinel, addresses, options, .. } = &self.config;
        match &location.kind {
            Kind::Server | Kind::Cluster => Ok(location.addresses.clone()),
            Kind::Sentinel(name) => {
                let sentinels = Sentinels::new(name.clone(), &location.addresses, sentinel.clone(), *options);
                let primary = tokio::time::timeout_at(self.until.into(), sentinels.primary(addresses)).await;
                Ok(vec![primary.unwrap_or_else(|_| Err(timeout()))?])
            }
        }
    }

    /// Of a store whose sentinels do not tell the primary.
    fn without_primary(&self, error: Error) -> Inspection {
        let sentinels: Vec<String> = self.config.location.addresses.iter().map(Address::to_string).collect();
        let node = NodeInspection { address: sentinels.join(", "), place: Place::Alone, server: Err(error) };
        self.inspection(None, vec![node])
    }

    fn inspection(&self, cluster: Option<Result<ClusterInspection>>, nodes: Vec<NodeInspection>) -> Inspection {
        let Config { prefix, options, .. } = &self.config;
        let (prefix, batch_across_slots) = (prefix.to_string(), options.batch_across_slots);
        Inspection { prefix, deadline: self.deadline, batch_across_slots, cluster, nodes }
    }

    /// The cluster as the first seed that can tell it sees it; none where there is no cluster or nobody was reached.
    async fn map(&self, opened: &mut [(Address, Result<Visit>)]) -> Option<Result<(ClusterInspection, Places)>> {
        let mut map = None;
        for (_, visit) in opened {
            let Ok(visit) = visit else { continue };
            let in_url = self.config.location.kind == Kind::Cluster;
            if visit.cluster || in_url {
                let told = cluster::read(visit, in_url, &self.config.addresses).await;
                let found = told.is_ok();
                map = Some(told);
                if found {
                    break;
                }
            }
        }
        map
    }

    /// Asks one server everything.
    async fn look(self: Arc<Self>, address: Address, place: Place, slots: Slots) -> Result<ServerInspection> {
        let mut visit = Visit::open(&address, &self.config.access, self.until).await?;
        let hello = visit.ask(&redis::cmd("HELLO")).await?;
        let told = |name: &str| super::connect::field(&hello, name).unwrap_or_default();
        let (version, is_replica) = (told("version"), told("role") == "replica");
        let info = visit.ask(&redis::cmd("INFO")).await.and_then(|info| text(&info));
        let field = |name: &str| info.as_deref().ok().and_then(|info| field(info, name)).map(str::to_owned);
        // Valkey calls itself Redis where it is to be taken for one.
        let name = field("server_name").unwrap_or_else(|| told("server"));
        let version = field("valkey_version").unwrap_or(version);
        let primary = field("master_host").zip(field("master_port")).map(|(host, port)| format!("{host}:{port}"));
        let user = match visit.ask(redis::cmd("ACL").arg("WHOAMI")).await.and_then(|user| text(&user)) {
            Ok(user) => user,
            // Not allowed to ask: it is whom the login named.
            Err(_) => self.config.access.username.clone().unwrap_or_else(|| "default".to_owned()),
        };
        let memory = match field("maxmemory_policy") {
            Some(policy) => {
                let number = |name: &str| field(name).and_then(|number| number.parse().ok());
                Ok(MemoryInspection {
                    policy,
                    max: number("maxmemory").unwrap_or_default(),
                    used: number("used_memory"),
                })
            }
            // What INFO would not tell is the first reason, where neither does.
            None => configured_memory(&mut visit).await.map_err(|error| info.err().unwrap_or(error)),
        };
        let (round_trip, clock) = measure(&mut visit).await;
        let prefix = Arc::clone(&self.config.prefix);
        let owns = move |slot: &u16| slots.is_empty() || slots.iter().any(|range| range.contains(slot));
        // Many are tried where a node has few slots, and meanwhile the I/O thread serves limiters.
        let subjects = finished(tokio::task::spawn_blocking(move || trial::subjects(&prefix, owns))).await?;
        let lacks = permissions::lacking(&mut visit, &self.config.prefix, &subjects[0]).await;
        let is_tried = if visit.cluster { place == Place::Primary } else { true };
        let check =
            if is_tried { Some(trial::check(&mut visit, &self.config.prefix, &subjects[0]).await) } else { None };
        let batch = match subjects.get(1) {
            Some(other) if is_tried && visit.cluster => {
                Some(trial::batch(&mut visit, &self.config.prefix, [&subjects[0], other]).await)
            }
            _ => None,
        };
        Ok(ServerInspection {
            name,
            version,
            is_replica,
            primary,
            user,
            lacks,
            check,
            memory,
            clock,
            round_trip,
            batch,
        })
    }
}

/// The nodes of a store, each with its place.
type Places = Vec<(Address, Place, Slots)>;

/// Begins some work for each, all at once.
fn together<T: Clone, O: Send + 'static, F: Future<Output = O> + Send + 'static>(
    all: &[T],
    work: impl Fn(&T) -> F,
) -> Vec<(T, JoinHandle<O>)> {
    all.iter().map(|one| (one.clone(), tokio::spawn(work(one)))).collect()
}

async fn finished<T>(work: JoinHandle<T>) -> Result<T> {
    work.await.map_err(|_| unavailable("the I/O thread has ended"))
}

/// The same where INFO is not allowed or says nothing of it.
async fn configured_memory(visit: &mut Visit) -> Result<MemoryInspection> {
    let reply = visit.ask(redis::cmd("CONFIG").arg("GET").arg("maxmemory*")).await?;
    let settings: Vec<String> = redis::from_redis_value(reply).map_err(|_| super::script::garbled())?;
    let setting = |name: &str| settings.chunks_exact(2).find(|pair| pair[0] == name).map(|pair| pair[1].clone());
    let policy = setting("maxmemory-policy").ok_or_else(|| unavailable("it has no maxmemory-policy"))?;
    let max = setting("maxmemory").and_then(|max| max.parse().ok()).unwrap_or_default();
    Ok(MemoryInspection { policy, max, used: None })
}

/// Asks for the time, again and again: what the fastest reply says of the clock is the most exact.
async fn measure(visit: &mut Visit) -> (Result<RoundTrip>, Result<ClockInspection>) {
    let (began, base) = (clock::instant(), Clock::Asked.now(&mut Look::default()));
    let between = clock::instant() - began;
    let (mut trips, mut clock) = (Vec::new(), Err(timeout()));
    while trips.len() < ROUND_TRIPS && clock::instant() - began < MEASURED_FOR {
        let sent = clock::instant();
        let reply = visit.ask(&redis::cmd("TIME")).await;
        let trip = clock::instant() - sent;
        let ahead = match reply.and_then(|reply| micros(&reply)) {
            Ok(theirs) => {
                let ours = i128::from(base) + (sent + trip / 2).duration_since(began).as_micros().cast_signed();
                i64::try_from(i128::from(theirs) - ours).map_err(|_| unavailable("its clock makes no sense"))
            }
            Err(error) => Err(error),
        };
        if visit.is_lost() {
            break;
        }
        if trips.iter().all(|other| trip < *other) {
            clock = ahead.map(|ahead| ClockInspection { ahead, within: trip / 2 + between });
        }
        trips.push(trip);
    }
    trips.sort_unstable();
    let round_trip = match trips.last() {
        Some(worst) => Ok(RoundTrip { count: trips.len(), median: trips[trips.len() / 2], worst: *worst }),
        None => Err(timeout()),
    };
    (round_trip, clock)
}

/// TIME's reply: seconds and microseconds.
fn micros(reply: &Value) -> Result<u64> {
    let parts: Vec<u64> = redis::from_redis_value_ref(reply).map_err(|_| super::script::garbled())?;
    match parts[..] {
        [seconds, micros] => Ok(seconds * 1_000_000 + micros),
        _ => Err(super::script::garbled()),
    }
}

fn text(reply: &Value) -> Result<String> {
    redis::from_redis_value_ref(reply).map_err(|_| super::script::garbled())
}

/// A field of what INFO and CLUSTER INFO say: `name:value` lines.
fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines().filter_map(|line| line.split_once(':')).find(|(other, _)| *other == name).map(|(_, value)| value)
}
