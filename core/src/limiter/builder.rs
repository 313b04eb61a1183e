//! How a limiter is made.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use super::line::Lines;
use super::rules::AllRows;
use super::{Inner, Limiter, MAX_DEADLINE, PLANS, Pending, Store};
use crate::breaker::Bounds;
use crate::cache::Cache;
use crate::clock::{self, Clock};
use crate::document::{
    DEFAULT_DEADLINE, DEFAULT_DENY_CACHE_MAX, DEFAULT_PREFIX, Document, MAX_DENY_CACHE_MAX, MAX_MAX_KEYS, Secret,
};
use crate::error::{Error, ErrorKind, Result};
use crate::fork::{self, PerProcess};
use crate::inspection::Inspection;
use crate::io;
use crate::rule::Rule;
use crate::store::memory::{DEFAULT_MAX_KEYS, MemoryStore};
use crate::store::redis::{Access, Addresses, Config, Inspector, Location, Options, Remote};

/// A limiter in the making. Errors are told by [`build`](Builder::build), the first of them.
#[must_use = "a builder does nothing until it is built"]
#[derive(Debug)]
pub struct Builder {
    rules: Vec<Rule>,
    url: Option<Secret>,
    prefix: String,
    deadline: Duration,
    max_keys: usize,
    deny_cache_max: Duration,
    options: Options,
    secret: Option<Secret>,
    access: Access,
    /// How to log in to sentinels.
    sentinel: Access,
    addresses: Addresses,
    /// The system's, unless a test has given one.
    clock: Option<Clock>,
    error: Option<Error>,
}

impl Default for Builder {
    fn default() -> Builder {
        Builder {
            rules: Vec::new(),
            url: None,
            prefix: DEFAULT_PREFIX.into(),
            deadline: DEFAULT_DEADLINE,
            max_keys: DEFAULT_MAX_KEYS,
            deny_cache_max: DEFAULT_DENY_CACHE_MAX,
            options: Options { breaker: Bounds::default(), batch_across_slots: true },
            secret: None,
            access: Access::default(),
            sentinel: Access::default(),
            addresses: Addresses::default(),
            clock: None,
            error: None,
        }
    }
}

impl Builder {
    /// A rule from text, as [`Rule::parse`] reads it.
    pub fn rule(self, name: impl Into<String>, limits: &str) -> Builder {
        match Rule::parse(name, limits) {
            Ok(rule) => self.rules([rule]),
            Err(error) => self.fail(error),
        }
    }

    /// Rules made by hand.
    pub fn rules(mut self, rules: impl IntoIterator<Item = Rule>) -> Builder {
        self.rules.extend(rules);
        self
    }

    /// Where state lives: `redis://host:6379`, `redis+unix:///path`, `redis+cluster://host:port,host:port`, or the primary
    /// that sentinels name: `redis+sentinel://host:26379,host:26379/name`. For TLS `rediss` instead of `redis`. In memory
    /// without one.
    pub fn url(mut self, url: &str) -> Builder {
        self.url = Some(Secret::new(url));
        self
    }

    /// What every stored key begins with: 1 to 64 of `A-Z a-z 0-9 _ . : -`, `tidegate` unless said.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Builder {
        self.prefix = prefix.into();
        self
    }

    /// How long the store may take unless a call says otherwise: 100 ms unless said here.
    pub fn deadline(mut self, deadline: Duration) -> Builder {
        self.deadline = deadline;
        self
    }

    /// The most keys that the memory store keeps: 1,000,000 unless said.
    pub fn max_keys(mut self, max_keys: usize) -> Builder {
        self.max_keys = max_keys;
        self
    }

    /// How long this process may remember a refusal of a shared store, and answer the same check without asking: 1 s
    /// unless said, 0 for not at all, at most 60 s. A reset, refund or raise elsewhere shows within it.
    pub fn deny_cache_max(mut self, max: Duration) -> Builder {
        self.deny_cache_max = max;
        self
    }

    /// When the circuit breaker of a node opens, and for how long: after `failures` in a row (1 to 1,000; 5 unless said)
    /// for `wait` (100 ms unless said), doubled with each probe that fails up to `max_wait` (1 s unless said, at most
    /// 60 s).
    pub fn breaker(mut self, failures: u32, wait: Duration, max_wait: Duration) -> Builder {
        self.options.breaker = Bounds { failures, wait, max_wait };
        self
    }

    /// Whether checks of several slots of one node of a cluster may leave together: yes unless said. A node that refuses
    /// it is not asked again.
    pub fn batch_across_slots(mut self, batch: bool) -> Builder {
        self.options.batch_across_slots = batch;
        self
    }

    /// Where a server is reached that announces another address, to the nodes of its cluster or to sentinels: `host:port`
    /// and `host:port`, or two hosts, which keeps the ports. What the URL says is reached as it is written. A bad address
    /// is `invalid_document`.
    pub fn map_address(mut self, announced: &str, reached: &str) -> Builder {
        match self.addresses.add(announced, reached) {
            Ok(()) => self,
            Err(error) => self.fail(error),
        }
    }

    /// Everything that a configuration document says, with `TIDEGATE_URL` before its url. What the document leaves out of
    /// `[store]` has its default, so give what is to differ after the document.
    pub fn document(self, document: &Document) -> Builder {
        let store = document.store();
        // A password's file is read at each connect, and need not be there yet.
        let password = if store.password_file().is_some() { Ok(None) } else { store.password() };
        let (password, secret, addresses) = match (password, store.key_secret(), store.address_map()) {
            (Ok(password), Ok(secret), Ok(addresses)) => (password, secret, addresses),
            (Err(error), ..) | (_, Err(error), _) | (.., Err(error)) => return self.fail(error),
        };
        let url = document.url(std::env::var("TIDEGATE_URL").ok());
        let access = Access {
            username: store.username.clone(),
            password,
            password_file: store.password_file().map(Path::to_owned),
            database: 0,
            tls: store.tls.clone(),
        };
        let before = self.rules(document.rules().iter().cloned());
        Builder {
            url: url.map(Secret::new).or(before.url),
            prefix: store.prefix.clone(),
            deadline: store.deadline,
            max_keys: store.max_keys,
            deny_cache_max: store.deny_cache_max,
            options: Options { breaker: store.breaker.bounds(), batch_across_slots: store.batch_across_slots },
            secret: secret.or(before.secret),
            access,
            sentinel: store.sentinel.access(),
            addresses,
            ..before
        }
    }

    /// In this process, whatever a document or `TIDEGATE_URL` says, and on a clock that the caller sets, in microseconds
    /// since 1970: for tests of what uses a limiter. [`Limiter::acquire`] waits real time all the same.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use std::sync::atomic::{AtomicU64, Ordering};
    ///
    /// let clock = Arc::new(AtomicU64::new(1_893_456_000_000_000));
    /// let limiter = tidegate::Limiter::builder().rule("login", "1/m").in_memory_at(&clock).build()?;
    /// assert!(limiter.check("login", "alice").wait()?.allowed());
    /// assert!(!limiter.check("login", "alice").wait()?.allowed());
    /// clock.fetch_add(60_000_000, Ordering::SeqCst);
    /// assert!(limiter.check("login", "alice").wait()?.allowed());
    /// # Ok::<(), tidegate::Error>(())
    /// ```
    pub fn in_memory_at(mut self, clock: &Arc<std::sync::atomic::AtomicU64>) -> Builder {
        self.url = None;
        self.clock = Some(Clock::Given(Arc::clone(clock)));
        self
    }

    /// A clock that the caller sets, in microseconds since 1970, for servers too: for tests of Tidegate itself.
    #[cfg(any(test, feature = "testing"))]
    pub fn clock(mut self, clock: &Arc<std::sync::atomic::AtomicU64>) -> Builder {
        self.clock = Some(Clock::Given(Arc::clone(clock)));
        self
    }

    /// The limiter. Returns at once: connecting goes on in the background, and [`Limiter::ready`] waits for it.
    ///
    /// # Errors
    /// The first thing that was wrong: `invalid_rule`, `invalid_document`; `store_unavailable` if the I/O thread cannot
    /// be started.
    pub fn build(self) -> Result<Limiter> {
        let checked = self.checked()?;
        fork::watch().map_err(|error| {
            Error::new(ErrorKind::StoreUnavailable, format!("forks of this process cannot be noticed: {error}"))
        })?;
        checked.open()
    }

    /// What is wrong before any server is asked, the first of it.
    fn checked(mut self) -> Result<Builder> {
        if let Some(error) = self.error.take() {
            return Err(error);
        }
        crate::key::check_prefix(&self.prefix)?;
        if self.deadline.is_zero() || self.deadline > MAX_DEADLINE {
            return Err(document_error("the deadline is out of range; write 1 ms to 60 s"));
        }
        if !(1..=MAX_MAX_KEYS).contains(&self.max_keys) {
            return Err(document_error("max_keys is out of range; write 1 to 1,000,000,000"));
        }
        if self.deny_cache_max > MAX_DENY_CACHE_MAX {
            return Err(document_error("deny_cache_max is out of range; write 0 to 60 s"));
        }
        self.options.breaker.check().map_err(document_error)?;
        Ok(self)
    }

    fn open(self) -> Result<Limiter> {
        let prefix: Arc<str> = self.prefix.as_str().into();
        let store = match &self.url {
            None => Store::Memory(MemoryStore::new(self.max_keys, self.clock.clone().unwrap_or_default())),
            Some(url) => Store::Redis(Arc::new(Remote::open(self.config(url)?)?)),
        };
        let bare = Inner {
            store,
            prefix,
            secret: self.secret,
            deadline: self.deadline,
            rules: Vec::new(),
            plans: PerProcess::new(Cache::new(PLANS)),
            rates: HashMap::new(),
            lines: Arc::new(PerProcess::new(Lines::default())),
            rows: AllRows::new(),
            counters: Arc::default(),
        };
        let inner = bare.with_rules(self.rules)?;
        let limiter = Limiter { inner: Arc::new(inner) };
        #[cfg(feature = "testing")]
        if let Some(Clock::Given(clock)) = &self.clock {
            limiter.set_clock(clock);
        }
        Ok(limiter)
    }

    /// Looks at the servers that the URL leads to: each node of a cluster, on connections of its own. Rules do not
    /// matter here. Everything is answered or given up within `timeout` (above 0, at most 60 s; 5 s is plenty).
    ///
    /// Each primary decides some checks for a random subject under the prefix. On every node one key more of that subject,
    /// which ends in `:doctor`, shows what the user is allowed. All of it is deleted at once; where the user may not
    /// delete, it expires within seconds: the `:doctor` key 10 s after it was written, what the checks wrote within half a minute.
    ///
    /// # Errors
    /// `invalid_document` for what [`build`](Builder::build) would refuse in the store's options, and where there is no
    /// URL; `invalid_request` for a timeout out of range; `store_unavailable` if the I/O thread cannot be started. Servers
    /// that fail are no error: the inspection says what is wrong with them.
    pub fn inspect(self, timeout: Duration) -> Pending<Inspection> {
        Pending::new(async move {
            let inspector = self.checked()?.inspector(timeout)?;
            let (answer, mut owed) = oneshot::channel();
            io::handle()?.spawn(async move { drop(answer.send(inspector.inspect().await)) });
            io::owed(&mut owed).await.ok_or_else(super::ended)
        })
    }

    fn inspector(self, timeout: Duration) -> Result<Inspector> {
        if timeout.is_zero() || timeout > MAX_DEADLINE {
            return Err(Error::new(ErrorKind::InvalidRequest, "the timeout is out of range; write 1 ms to 60 s"));
        }
        let url = self.url.as_ref().ok_or_else(|| {
            document_error(
                "there is no server to look at: without a url, state is in memory; write one such as \
                            redis://127.0.0.1:6379",
            )
        })?;
        Ok(Inspector { config: self.config(url)?, deadline: self.deadline, until: clock::after(timeout) })
    }

    fn config(&self, url: &Secret) -> Result<Config> {
        let (location, access) = reached(url, self.access.clone())?;
        Ok(Config {
            location,
            // Sentinels have users of their own; TLS is as everywhere.
            sentinel: Access { tls: access.tls.clone(), ..self.sentinel.clone() },
            access,
            addresses: self.addresses.clone(),
            prefix: self.prefix.as_str().into(),
            deny_cache_max: self.deny_cache_max,
            options: self.options,
        })
    }

    fn fail(mut self, error: Error) -> Builder {
        self.error.get_or_insert(error);
        self
    }
}

/// What the URL says, with the document's own fields before it.
fn reached(url: &Secret, mut access: Access) -> Result<(Location, Access)> {
    let location = Location::parse(url.expose())?;
    access.username = access.username.or_else(|| location.username.clone());
    access.password = access.password.or_else(|| location.password.clone());
    access.database = location.database;
    if access.username.is_some() && access.password.is_none() && access.password_file.is_none() {
        return Err(document_error(
            "there is a username and no password, and without one nobody is logged in; write password or \
             password_file (any password for a user with nopass), or leave the username out",
        ));
    }
    if location.tls {
        access.tls.get_or_insert_default();
    } else if access.tls.take().is_some() {
        return Err(document_error("the document has [store.tls], and the url is without TLS; write rediss://"));
    }
    Ok((location, access))
}

fn document_error(message: &str) -> Error {
    Error::new(ErrorKind::InvalidDocument, message)
}
