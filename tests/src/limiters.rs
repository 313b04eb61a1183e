//! The same limiter in every store, each on a clock and with a prefix of the test's own.
//!
//! ```no_run
//! use tidegate_tests::limiters::{Sure, for_each_store};
//!
//! for_each_store(|place| {
//!     let limiter = place.limiter(&[("login", "3/m")]);
//!     assert_eq!(limiter.check("login", "alice").sure().remaining(), 2);
//!     place.clock.forward(60_000_000);
//! });
//! ```

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use redis::FromRedisValue;
use tidegate::{Builder, Check, Decision, Limiter, Origin, Receipt};

use crate::servers::{Cluster, Server, keys_without_ttl, shared_cluster, shared_server, slot};

/// A minute, an hour, a day of no importance: when every test's clock begins, in microseconds since 1970.
pub const START: u64 = 1_893_456_000_000_000;
/// A second in microseconds.
pub const SECOND: u64 = 1_000_000;
/// The names of all algorithms, as rates are written with them.
pub const ALGORITHMS: [&str; 5] =
    ["sliding_window_log", "sliding_window", "token_bucket", "sliding_window_counter", "fixed_window"];
/// The deadline of the tests' limiters, longer than any machine is slow: a test that fails is to mean something else.
const PATIENCE: Duration = Duration::from_secs(20);

/// A clock that stands still until the test moves it.
#[derive(Debug, Clone)]
pub struct Clock(Arc<AtomicU64>);

impl Clock {
    /// The time, in microseconds since 1970.
    #[must_use]
    pub fn now(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }

    /// Steps to a time, ahead or back.
    pub fn set(&self, now: u64) {
        self.0.store(now, Ordering::SeqCst);
    }

    /// Lets microseconds pass.
    pub fn forward(&self, micros: u64) {
        self.set(self.now() + micros);
    }

    /// Lets a wait that a decision named pass.
    pub fn wait(&self, wait: Duration) {
        self.forward(micros(wait));
    }
}

/// A store, with what a test may do to it behind the limiter's back.
#[derive(Debug)]
pub struct Place {
    /// Where all limiters of this place take their time from.
    pub clock: Clock,
    prefix: String,
    store: Store,
}

#[derive(Debug, Clone, Copy)]
enum Store {
    Memory,
    Redis(&'static Server),
    Cluster(&'static Cluster),
}

/// The stored state of a place: each key with its value, dumped, and the time of its end.
pub type Stored = Vec<(Vec<u8>, Vec<u8>, i64)>;

impl Place {
    fn new(store: Store) -> Place {
        static PLACES: AtomicU64 = AtomicU64::new(0);
        let prefix = format!("test{}", PLACES.fetch_add(1, Ordering::SeqCst));
        Place { clock: Clock(Arc::new(AtomicU64::new(START))), prefix, store }
    }

    /// In memory. Each limiter has a state of its own.
    #[must_use]
    pub fn memory() -> Place {
        Place::new(Store::Memory)
    }

    /// On the shared server. All limiters of the place share their state.
    #[must_use]
    pub fn redis() -> Place {
        Place::new(Store::Redis(shared_server()))
    }

    /// On the shared cluster. All limiters of the place share their state.
    #[must_use]
    pub fn cluster() -> Place {
        Place::new(Store::Cluster(shared_cluster()))
    }

    /// A limiter of the place on the place's clock.
    #[must_use]
    pub fn limiter(&self, rules: &[(&str, &str)]) -> Limiter {
        build(self.builder(), rules)
    }

    /// The same, to be changed first.
    pub fn builder(&self) -> Builder {
        self.real_time_builder().clock(&self.clock.0)
    }

    /// A limiter on the store's real clock. Not beside one on the place's clock, which it would share a store with.
    pub fn real_time_builder(&self) -> Builder {
        let builder = Limiter::builder().prefix(&self.prefix).deadline(PATIENCE);
        match self.url() {
            Some(url) => builder.url(&url),
            None => builder,
        }
    }

    /// Where its servers are; none in memory.
    #[must_use]
    pub fn url(&self) -> Option<String> {
        match self.store {
            Store::Memory => None,
            Store::Redis(server) => Some(server.url()),
            Store::Cluster(cluster) => Some(cluster.url()),
        }
    }

    /// What its stored keys begin with.
    #[must_use]
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Whether it is the memory store, whose limiters share nothing and which has no keys to look at.
    #[must_use]
    pub fn is_memory(&self) -> bool {
        matches!(self.store, Store::Memory)
    }

    /// The stored key of a subject that needs no escaping, such as `("alice", "login:sliding_window:60000")`.
    #[must_use]
    pub fn key(&self, subject: &str, rest: &str) -> String {
        format!("{}:1:{{{subject}}}:{rest}", self.prefix)
    }

    /// Runs a command that names a key in its first argument, on the node that has the key.
    #[track_caller]
    pub fn command<T: FromRedisValue>(&self, name: &str, key: &[u8], arguments: &[&[u8]]) -> T {
        let server = self.servers().into_iter().find(|server| match self.store {
            Store::Cluster(cluster) => cluster.master_of(slot(key)).port() == server.port(),
            _ => true,
        });
        let server = server.expect("only a place with servers runs commands");
        let answer = redis::cmd(name).arg(key).arg(arguments).query(&mut server.connection());
        answer.unwrap_or_else(|error| panic!("{name} failed: {error}"))
    }

    /// All that is stored under the place's prefix, in order; nothing in memory.
    #[must_use]
    pub fn stored(&self) -> Stored {
        let mut stored = Stored::new();
        for server in self.servers() {
            let mut connection = server.connection();
            // The servers are shared, and small: KEYS is simpler than SCAN.
            let pattern = format!("{}:*", self.prefix);
            let keys: Vec<Vec<u8>> = redis::cmd("KEYS").arg(pattern).query(&mut connection).expect("the server lists");
            for key in keys {
                let (dump, end): (Option<Vec<u8>>, i64) = redis::pipe()
                    .cmd("DUMP")
                    .arg(&key)
                    .cmd("PEXPIRETIME")
                    .arg(&key)
                    .query(&mut connection)
                    .expect("the server dumps");
                // A key may have expired since it was listed.
                stored.extend(dump.map(|dump| (key, dump, end)));
            }
        }
        stored.sort();
        stored
    }

    /// The names of the stored keys.
    #[must_use]
    pub fn stored_keys(&self) -> Vec<String> {
        let names = self.stored().into_iter().map(|(key, _, _)| String::from_utf8(key));
        names.collect::<Result<_, _>>().expect("every stored key is printable")
    }

    /// The nodes that own keys.
    #[must_use]
    pub fn servers(&self) -> Vec<&'static Server> {
        match self.store {
            Store::Memory => Vec::new(),
            Store::Redis(server) => vec![server],
            Store::Cluster(cluster) => cluster.masters(),
        }
    }

    /// Law 8, after every test: no key of this place would stay for ever.
    #[track_caller]
    pub fn assert_that_every_key_has_a_ttl(&self) {
        for server in self.servers() {
            let eternal = keys_without_ttl(&mut server.connection());
            let mut ours = eternal.iter().filter(|key| key.starts_with(format!("{}:", self.prefix).as_bytes()));
            assert_eq!(ours.next().map(|key| String::from_utf8_lossy(key)), None, "has no TTL");
        }
    }
}

/// A limiter of rules written as text.
#[must_use]
pub fn build(builder: Builder, rules: &[(&str, &str)]) -> Limiter {
    let builder = rules.iter().fold(builder, |builder, (name, limits)| builder.rule(*name, limits));
    builder.build().expect("the test's rules can be meant")
}

/// Runs a test in every store, and names the store in which it fails.
#[track_caller]
pub fn for_each_store(test: impl Fn(&Place)) {
    in_each(&[Place::memory, Place::redis, Place::cluster], test);
}

/// Runs a test in every store that has keys to look at.
#[track_caller]
pub fn for_each_server(test: impl Fn(&Place)) {
    in_each(&[Place::redis, Place::cluster], test);
}

#[track_caller]
fn in_each(places: &[fn() -> Place], test: impl Fn(&Place)) {
    for place in places {
        let place = place();
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            test(&place);
            place.assert_that_every_key_has_a_ttl();
        }));
        // The message itself has been printed.
        assert!(outcome.is_ok(), "on {:?}", place.store_name());
    }
}

impl Place {
    fn store_name(&self) -> &'static str {
        match self.store {
            Store::Memory => "memory",
            Store::Redis(_) => "redis",
            Store::Cluster(_) => "cluster",
        }
    }
}

/// The answer of a store that works.
pub trait Sure {
    /// Decides, and fails the test if it was not the store that decided.
    fn sure(self) -> Decision;
}

impl Sure for Check<'_> {
    #[track_caller]
    fn sure(self) -> Decision {
        let decision = self.wait().expect("the call can be meant");
        assert_eq!(decision.failure(), None, "the store works");
        assert!(matches!(decision.origin(), Origin::Store | Origin::DenyCache), "{:?}", decision.origin());
        decision
    }
}

/// What a decision says, to be compared: allowed, remaining, `retry_after` and `reset_after` in microseconds.
#[must_use]
pub fn figures(decision: &Decision) -> (bool, u32, Option<u64>, Option<u64>) {
    let (retry_after, reset_after) = (decision.retry_after(), decision.reset_after());
    (decision.allowed(), decision.remaining(), retry_after.map(micros), reset_after.map(micros))
}

/// When the only limit of a rule was charged.
#[must_use]
pub fn charged_at(receipt: &Receipt) -> u64 {
    receipt.charged_at().next().expect("the check was admitted")
}

/// Charges one unit at a time until refused; how many were admitted.
pub fn drain(limiter: &Limiter, rule: &str, key: &str, most: usize) -> usize {
    (0..most).take_while(|_| limiter.check(rule, key).sure().allowed()).count()
}

/// A duration in whole microseconds.
#[must_use]
pub fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).expect("no wait is that long")
}

/// What some work returned, and how long it took.
#[allow(clippy::disallowed_methods, reason = "for generous bounds on answers within a deadline, and nothing else")]
pub fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let start = Instant::now();
    let value = work();
    (value, start.elapsed())
}

/// Numbers that look random and are the same in every run (xorshift).
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// Any seed but 0.
    #[must_use]
    pub fn new(seed: u64) -> Random {
        assert_ne!(seed, 0, "xorshift stays at 0");
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// A number below a bound.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % bound
    }

    /// One of several.
    pub fn pick<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        let index = usize::try_from(self.below(choices.len() as u64)).expect("it is below a length");
        &choices[index]
    }
}
