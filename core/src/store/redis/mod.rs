//! Redis and Valkey, alone or as a cluster. What crosses to the I/O thread is a call; what comes back is its answer,
//! once, by its deadline.

mod address;
mod batch;
mod connect;
mod failure;
mod inspect;
mod job;
mod lane;
mod node;
mod rare;
mod relay;
mod remote;
mod script;
mod sentinel;
mod slot;
#[cfg(feature = "testing")]
mod testing;
mod topology;
mod trip;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

use redis::{Cmd, Value};
use tokio::sync::oneshot;

pub(crate) use self::address::{Addresses, Location};
pub(crate) use self::batch::Together;
pub(crate) use self::connect::Access;
use self::failure::{Failure, unavailable};
pub(crate) use self::inspect::Inspector;
use self::job::Job;
pub use self::relay::LoopSocket;
pub(crate) use self::remote::Remote;
use self::script::Request;
use self::topology::Topology;
use crate::breaker::{Bounds, Breaker, Change};
use crate::clock::{self, Clock};
use crate::completion::Waiter;
use crate::decision::{Decision, Reply};
use crate::deny_cache::DenyCache;
use crate::error::{Error, ErrorKind, Result};
use crate::fork::PerProcess;
use crate::io::{self, Beats};
use crate::metrics::{Meter, Metrics};
use crate::plan::Call;
use crate::request_id;
use crate::rule::OnError;
use crate::store::memory::{DEFAULT_MAX_KEYS, MemoryStore};

/// What makes two stores the same: limiters that agree on it share connections.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Config {
    pub(crate) location: Location,
    pub(crate) access: Access,
    /// How to log in to sentinels.
    pub(crate) sentinel: Access,
    /// Where servers are reached that announce other addresses.
    pub(crate) addresses: Addresses,
    pub(crate) prefix: Arc<str>,
    /// How long a refusal is remembered at the most.
    pub(crate) deny_cache_max: Duration,
    pub(crate) options: Options,
}

/// What every node of a store is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Options {
    pub(crate) breaker: Bounds,
    /// Whether checks of several slots of a cluster's node may leave as one run of the script.
    pub(crate) batch_across_slots: bool,
}

#[derive(Debug)]
pub(crate) struct RedisStore {
    topology: Arc<Topology>,
    prefix: Arc<str>,
    meters: Meters,
    denied: DenyCache,
    /// For batches that wait.
    beats: Arc<Beats>,
    /// Decides while the store fails, for rules that want it.
    fallback: OnceLock<MemoryStore>,
    #[cfg(feature = "testing")]
    given: testing::GivenClock,
}

/// What is counted of a store.
#[derive(Debug)]
struct Meters {
    latency: Meter,
    batch_sizes: Meter,
    /// Charges that came to light after their call was answered as refused, and were given back.
    late_refunds: AtomicU64,
}

impl Default for Meters {
    fn default() -> Meters {
        let (latency, batch_sizes) = (Meter::of_latency(), Meter::of_batch_sizes());
        Meters { latency, batch_sizes, late_refunds: AtomicU64::new(0) }
    }
}

/// How a check or peek ended.
#[derive(Debug)]
pub(crate) enum Answer {
    Store(Reply),
    /// Decided in this process, since the store failed.
    Local(Reply, Error),
    Failed(Error),
}

impl Answer {
    /// Whether the request may pass.
    fn passes(&self, call: &Call) -> bool {
        match self {
            Answer::Store(reply) | Answer::Local(reply, _) => reply.allowed || !call.plan.enforces,
            Answer::Failed(_) => call.plan.on_error == OnError::Allow || !call.plan.enforces,
        }
    }
}

/// The stores that this process has, none at first.
type Stores = Option<HashMap<Config, Weak<RedisStore>>>;

/// An answer that the I/O thread owes.
pub(crate) type Owed<T> = oneshot::Receiver<Result<T>>;

/// How often one call follows redirects.
const MOST_REDIRECTS: u32 = 5;
/// How long a call that was answered at its deadline is waited for, to give back what it charged.
const LATE: Duration = Duration::from_secs(60);
/// How often a call is sent again whose keys are on two nodes.
const HALFWAY: Duration = Duration::from_millis(10);
/// After which silence a connection is given up: calls go over a new one, and late replies still come over the old.
const SILENCE: Duration = Duration::from_secs(1);

impl RedisStore {
    /// The store of a configuration: the one that this process has, or a new one that connects in the background.
    pub(crate) fn open(config: &Config) -> Result<Arc<RedisStore>> {
        static STORES: PerProcess<Mutex<Stores>> = PerProcess::first(Mutex::new(None));
        let handle = io::handle()?;
        let mut stores = STORES.get(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner);
        let stores = stores.get_or_insert_default();
        stores.retain(|_, store| store.strong_count() > 0);
        if let Some(store) = stores.get(config).and_then(Weak::upgrade) {
            return Ok(store);
        }
        let store = Arc::new(RedisStore {
            topology: Topology::new(config),
            prefix: Arc::clone(&config.prefix),
            meters: Meters::default(),
            denied: DenyCache::new(config.deny_cache_max),
            beats: Arc::default(),
            fallback: OnceLock::new(),
            #[cfg(feature = "testing")]
            given: testing::GivenClock::default(),
        });
        stores.insert(config.clone(), Arc::downgrade(&store));
        let warmed = Arc::clone(&store);
        handle.spawn(async move { warmed.warm(clock::instant() + Duration::from_secs(5)).await });
        handle.spawn(topology::keep_up(Arc::downgrade(&store.topology)));
        Ok(store)
    }

    /// The refusal that is remembered of a call.
    pub(crate) fn remembered(&self, call: &Call) -> Option<Reply> {
        if self.remembers() { self.denied.answer(call) } else { None }
    }

    /// How long a refusal is remembered.
    pub(crate) fn holds(&self, refusal: &Decision) -> Option<Duration> {
        if self.remembers() { self.denied.holds(refusal) } else { None }
    }

    pub(crate) fn refusals_ended(&self) -> Arc<AtomicU64> {
        self.denied.epoch()
    }

    /// Begins a check or peek. Where its node is known to be unwell, the answer is there at once.
    pub(crate) fn decide(self: &Arc<Self>, call: &Call) -> Result<oneshot::Receiver<Answer>, Answer> {
        let (sender, receiver) = oneshot::channel();
        self.begin(call, || Waiter::Future(sender))?;
        Ok(receiver)
    }

    /// Begins a check or peek for whoever is to wait, once it is on its way.
    pub(crate) fn begin(self: &Arc<Self>, call: &Call, waiter: impl FnOnce() -> Waiter) -> Result<(), Answer> {
        let handle = io::handle().map_err(|error| self.fall_back(call, error))?;
        let set_out = self.denied.set_out(clock::instant());
        let request = Request::decide(call, &self.prefix, self.lease());
        let node = self.topology.known(|| request.slot());
        let breaker = node.as_ref().map_or(&self.topology.breaker, |node| &node.breaker);
        breaker.admit(set_out.at).map_err(|error| self.fall_back(call, error))?;
        let job = Job::new(Arc::clone(self), call.clone(), request, set_out, waiter(), Arc::clone(breaker));
        match node.and_then(|node| Some((node.link_number()?, node))) {
            Some((link, node)) if job.is_light() => {
                if let Some(job) = lane::send(&node, link, job) {
                    node.queue.push(&node, job, handle);
                }
            }
            _ => drop(handle.spawn(job.alone())),
        }
        Ok(())
    }

    /// What a call is answered when the store fails it.
    pub(crate) fn fall_back(&self, call: &Call, error: Error) -> Answer {
        if call.plan.local.is_none() {
            return Answer::Failed(error);
        }
        let fallback = self.fallback.get_or_init(|| MemoryStore::new(DEFAULT_MAX_KEYS, Clock::Asked));
        Answer::Local(fallback.decide(&call.clone().local()), error)
    }

    fn failed(self: &Arc<Self>, breaker: &Breaker, error: &Error) {
        if breaker.failed(error, clock::instant()) == Change::Opened {
            log::warn!("{} fails, and is left alone for a while: {error}", breaker.of);
        }
        self.topology.refresh();
    }

    fn succeeded(&self, breaker: &Breaker) {
        if breaker.succeeded() == Change::Closed {
            log::info!("{} answers again", breaker.of);
        }
    }

    /// Waits until every node is connected and knows the script.
    pub(crate) fn ready(self: &Arc<Self>, deadline: Instant) -> Result<Owed<()>> {
        let store = Arc::clone(self);
        self.owe(deadline, async move { store.warm_until(deadline).await })
    }

    /// What its limiters count together, with what one of them has counted.
    pub(crate) fn metrics(&self, counted: Metrics) -> Metrics {
        let Meters { latency, batch_sizes, late_refunds } = &self.meters;
        let (latency, batch_sizes) = (latency.read(), batch_sizes.read());
        let late_refunds = late_refunds.load(Ordering::Relaxed);
        Metrics { latency, batch_sizes, late_refunds, nodes: self.topology.metrics(), ..counted }
    }

    /// Runs on the I/O thread and answers by the deadline, whatever the servers do.
    fn owe<T: Send + 'static>(
        self: &Arc<Self>,
        deadline: Instant,
        work: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<Owed<T>> {
        let (sender, receiver) = oneshot::channel();
        let topology = Arc::clone(&self.topology);
        io::handle()?.spawn(async move {
            let answer = tokio::time::timeout_at(deadline.into(), work).await;
            let _ = sender.send(answer.unwrap_or_else(|_| {
                topology.refresh();
                Err(timeout())
            }));
        });
        Ok(receiver)
    }

    /// Gives back what a reply charged that nobody took, once. Under an id of the application's the charge stands: the
    /// request may have been sent again meanwhile, and have passed as a repeat of this one.
    pub(crate) fn reclaim(self: Arc<Self>, call: Call, reply: Reply) {
        if !reply.is_charged() || request_id::is_given(&call.id) {
            return;
        }
        if let Ok(handle) = io::handle() {
            handle.spawn(async move { self.give_back(call, reply).await });
        }
    }

    async fn give_back(self: &Arc<Self>, call: Call, reply: Reply) {
        let rates: Vec<u32> = call.plan.limits.iter().map(|limit| limit.quota).collect();
        let receipt = Decision::from_store(call, reply).receipt();
        let (request, deadline) = (Request::refund(&receipt, &rates), clock::instant() + LATE);
        // Nothing is sent before there is a connection, so that may take as many attempts as it likes.
        while self.reach(request.slot(), deadline).await.is_err() {
            if clock::instant() >= deadline {
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        // Once on its way it is not sent again, whatever comes of it.
        self.meters.late_refunds.fetch_add(1, Ordering::Relaxed);
        let _ = self.run(request, deadline, false, None).await;
    }

    /// Waits for a connection to the node of a slot.
    async fn reach(self: &Arc<Self>, slot: u16, deadline: Instant) -> Result<()> {
        self.topology.route(slot, deadline).await?.link(deadline).await.map(drop)
    }

    /// Runs the script, and returns its packed reply.
    async fn run(
        self: &Arc<Self>,
        request: Request,
        deadline: Instant,
        repeatable: bool,
        blame: Option<&Blame>,
    ) -> Result<Vec<u8>> {
        let slot = request.slot();
        loop {
            match self.send(slot, deadline, repeatable, blame, |known| self.command(known, &request)).await {
                Ok(Value::BulkString(reply)) => return Ok(reply),
                Ok(_) => return Err(script::garbled()),
                // The keys are on two nodes while their slot moves, and nothing ran: soon they are on one.
                Err(error) if is_halfway(&error) && clock::instant() + HALFWAY < deadline => {
                    tokio::time::sleep(HALFWAY).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// One run of the script for one request.
    fn command(&self, known: bool, request: &Request) -> Cmd {
        let (script, time) = self.script(false);
        let mut command = script.command(known, request);
        if let Some(time) = time {
            command.arg(&time[..]);
        }
        command
    }

    #[cfg(not(feature = "testing"))]
    fn script(&self, across_slots: bool) -> (&'static script::Script, Option<Vec<u8>>) {
        (if across_slots { &script::ACROSS_SLOTS } else { &script::SCRIPT }, None)
    }

    #[cfg(not(feature = "testing"))]
    fn lease(&self) -> u64 {
        0
    }

    #[cfg(not(feature = "testing"))]
    fn remembers(&self) -> bool {
        true
    }

    /// Sends a command to the node of its slot. It is sent again only where it did not run: unknown script, redirect;
    /// after a lost connection only if it may be repeated. It is not sent past its deadline.
    async fn send(
        self: &Arc<Self>,
        slot: u16,
        deadline: Instant,
        repeatable: bool,
        blame: Option<&Blame>,
        command: impl Fn(bool) -> Cmd,
    ) -> Result<Value> {
        let mut node = self.topology.route(slot, deadline).await?;
        let (mut known, mut asking, mut redirects) = (true, false, 0);
        loop {
            if let Some(blame) = blame {
                blame.shift(&node.breaker);
            }
            let link = match node.link(deadline).await {
                Ok(link) => link,
                Err(error) => {
                    self.topology.refresh();
                    return Err(error);
                }
            };
            match node.send_alone(link, command(known), asking, deadline).await {
                Ok(value) => return Ok(value),
                Err(Failure::UnknownScript) if known => known = false,
                Err(Failure::Moved(to)) if redirects < MOST_REDIRECTS => {
                    self.topology.refresh();
                    (node, asking, redirects) = (self.topology.redirected(&to, &node)?, false, redirects + 1);
                }
                Err(Failure::Ask(to)) if redirects < MOST_REDIRECTS => {
                    (node, asking, redirects) = (self.topology.redirected(&to, &node)?, true, redirects + 1);
                }
                Err(Failure::Lost(_)) if repeatable && redirects < MOST_REDIRECTS => {
                    self.topology.refresh();
                    redirects += 1;
                }
                Err(Failure::Lost(error)) => {
                    self.topology.refresh();
                    return Err(error);
                }
                Err(Failure::Refused(error)) => {
                    if error.kind() == ErrorKind::StoreUnavailable {
                        self.topology.refresh();
                    }
                    return Err(error);
                }
                Err(Failure::UnknownScript | Failure::Moved(_) | Failure::Ask(_)) => {
                    return Err(unavailable("the cluster sent the call from node to node"));
                }
            }
        }
    }

    /// Connects every node and gives it the script; to load it needs a permission of its own, and is not needed.
    async fn warm(self: &Arc<Self>, deadline: Instant) -> Result<()> {
        for node in self.topology.nodes(deadline).await? {
            let link = node.link(deadline).await?;
            if link.cluster {
                let _ = node.send(link.clone(), &script::ACROSS_SLOTS.load(), false).await;
            }
            let _ = node.send(link, &script::SCRIPT.load(), false).await;
        }
        Ok(())
    }

    async fn warm_until(self: &Arc<Self>, deadline: Instant) -> Result<()> {
        loop {
            let attempt = clock::instant() + Duration::from_secs(1);
            match self.warm(attempt.min(deadline)).await {
                Ok(()) => return Ok(()),
                Err(error) if error.kind() != ErrorKind::StoreUnavailable => return Err(error),
                Err(error) if clock::instant() + Duration::from_millis(50) >= deadline => return Err(error),
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    }
}

/// Whether a server took no call over several keys since some of them are elsewhere: it did not run.
fn is_halfway(error: &Error) -> bool {
    error.message().contains("TRYAGAIN")
}

/// Whose failure it is that a call does not succeed: that of the node which it was sent to last.
#[derive(Debug)]
struct Blame(Mutex<Arc<Breaker>>);

impl Blame {
    fn on(breaker: &Arc<Breaker>) -> Blame {
        Blame(Mutex::new(Arc::clone(breaker)))
    }

    fn shift(&self, to: &Arc<Breaker>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Arc::clone(to);
    }

    fn whom(&self) -> Arc<Breaker> {
        Arc::clone(&self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn timeout() -> Error {
    Error::new(ErrorKind::Timeout, "the store did not answer within the deadline")
}
