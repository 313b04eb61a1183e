//! The `[store]` table.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::{Deserializer, Error as _, Visitor};

use super::invalid;
use super::secret::{Secret, Source, Url};
use crate::breaker::Bounds;
use crate::error::Result;
use crate::limiter::MAX_DEADLINE;
use crate::store::memory::DEFAULT_MAX_KEYS;
use crate::store::redis::{Access, Addresses};
use crate::{key, rates};

pub(crate) const DEFAULT_PREFIX: &str = "tidegate";
pub(crate) const DEFAULT_DEADLINE: Duration = Duration::from_millis(100);
pub(crate) const DEFAULT_DENY_CACHE_MAX: Duration = Duration::from_secs(1);
pub(crate) const MAX_DENY_CACHE_MAX: Duration = Duration::from_secs(60);
const MAX_DEADLINE_MS: u64 = MAX_DEADLINE.as_secs() * 1_000;
/// Places in the memory store stay far below 2^32.
pub(crate) const MAX_MAX_KEYS: usize = 1_000_000_000;
/// Half of the digest's length: the least that an HMAC key should have.
const MIN_KEY_SECRET: usize = 16;

/// Where state lives, and how it is reached.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, expecting = "a table with fields such as url")]
pub(crate) struct Store {
    /// Such as `redis://127.0.0.1:6379`; memory if absent. `TIDEGATE_URL` in the environment wins.
    url: Option<Url>,
    /// What the stored keys begin with: 1 to 64 of `A-Z a-z 0-9 _ . : -`.
    #[schemars(regex(pattern = r"^[A-Za-z0-9_.:-]{1,64}$"), extend("default" = DEFAULT_PREFIX))]
    pub(crate) prefix: String,
    /// How long a call may take: a duration such as `"100ms"`, or a whole number of milliseconds.
    #[serde(deserialize_with = "deadline")]
    #[schemars(schema_with = "deadline_schema", extend("default" = "100ms"))]
    pub(crate) deadline: Duration,
    /// The user to log in as.
    pub(crate) username: Option<String>,
    /// The password to log in with.
    password: Option<Secret>,
    /// A file that holds the password, read at each connect.
    password_file: Option<PathBuf>,
    /// The most keys that the memory store keeps.
    #[schemars(range(min = 1, max = MAX_MAX_KEYS), extend("default" = DEFAULT_MAX_KEYS))]
    pub(crate) max_keys: usize,
    /// How long this process may remember a refusal and answer the same check without asking: a duration, or a whole
    /// number of milliseconds; 0 for not at all.
    #[serde(deserialize_with = "deny_cache_max")]
    #[schemars(schema_with = "wait_schema", extend("default" = "1s"))]
    pub(crate) deny_cache_max: Duration,
    /// Replaces subjects in stored keys by their HMAC with this secret: at least 16 bytes.
    #[schemars(length(min = MIN_KEY_SECRET))]
    key_secret: Option<Secret>,
    /// A file that holds that secret, read at start.
    key_secret_file: Option<PathBuf>,
    /// When a node that fails is left alone, and for how long.
    pub(crate) breaker: Breaker,
    /// Whether checks of several slots of one node of a cluster may leave together.
    #[schemars(extend("default" = true))]
    pub(crate) batch_across_slots: bool,
    /// Certificates for `rediss://`.
    pub(crate) tls: Option<Tls>,
    /// How to log in to sentinels; they are not logged in to if absent.
    pub(crate) sentinel: Sentinel,
    /// Where servers are reached that announce other addresses: `host:port` to `host:port`, or a host to a host.
    address_map: BTreeMap<String, String>,
}

/// How to log in to sentinels, which have users of their own.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, expecting = "a table with fields such as password")]
pub(crate) struct Sentinel {
    /// The user to log in as.
    username: Option<String>,
    /// The password to log in with.
    password: Option<Secret>,
    /// A file that holds the password, read at each connect.
    password_file: Option<PathBuf>,
}

impl Sentinel {
    pub(crate) fn access(&self) -> Access {
        let Sentinel { username, password, password_file } = self.clone();
        Access { username, password, password_file, ..Access::default() }
    }

    fn password_source(&self) -> Source<'_> {
        let (given, file) = (self.password.as_ref(), self.password_file.as_ref());
        Source { table: "store.sentinel", field: "password", given, file, min_bytes: 1 }
    }
}

/// The circuit breaker of each node.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, expecting = "a table with fields such as failures")]
pub(crate) struct Breaker {
    /// The failures in a row with which it opens.
    #[schemars(range(min = 1, max = 1_000), extend("default" = 5))]
    failures: u32,
    /// How long it is open at first: doubled with each probe that fails.
    #[serde(deserialize_with = "wait")]
    #[schemars(schema_with = "wait_schema", extend("default" = "100ms"))]
    wait: Duration,
    /// The longest that it is open.
    #[serde(deserialize_with = "wait")]
    #[schemars(schema_with = "wait_schema", extend("default" = "1s"))]
    max_wait: Duration,
}

impl Default for Breaker {
    fn default() -> Breaker {
        let Bounds { failures, wait, max_wait } = Bounds::default();
        Breaker { failures, wait, max_wait }
    }
}

impl Breaker {
    pub(crate) fn bounds(self) -> Bounds {
        Bounds { failures: self.failures, wait: self.wait, max_wait: self.max_wait }
    }
}

/// Certificates, as paths of PEM files.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, expecting = "a table with fields such as ca")]
pub(crate) struct Tls {
    /// Trusted instead of the system's authorities.
    pub(crate) ca: Option<PathBuf>,
    /// What this client shows to the server; `key` belongs to it.
    pub(crate) certificate: Option<PathBuf>,
    /// The private key of `certificate`.
    pub(crate) key: Option<PathBuf>,
    /// The name in the server's certificate, where it is not the URL's host.
    pub(crate) server_name: Option<String>,
}

impl Default for Store {
    fn default() -> Store {
        Store {
            url: None,
            prefix: DEFAULT_PREFIX.to_owned(),
            deadline: DEFAULT_DEADLINE,
            username: None,
            password: None,
            password_file: None,
            max_keys: DEFAULT_MAX_KEYS,
            deny_cache_max: DEFAULT_DENY_CACHE_MAX,
            key_secret: None,
            key_secret_file: None,
            breaker: Breaker::default(),
            batch_across_slots: true,
            tls: None,
            sentinel: Sentinel::default(),
            address_map: BTreeMap::new(),
        }
    }
}

impl Store {
    pub(super) fn url(&self) -> Option<String> {
        self.url.as_ref().map(|url| url.0.clone())
    }

    /// The password as it is now: a `password_file` is read at each call.
    pub(crate) fn password(&self) -> Result<Option<Secret>> {
        self.password_source().secret()
    }

    /// The file that each connect reads the password from.
    pub(crate) fn password_file(&self) -> Option<&Path> {
        self.password_file.as_deref()
    }

    /// The secret of the keys' HMAC; a `key_secret_file` is read at each call.
    pub(crate) fn key_secret(&self) -> Result<Option<Secret>> {
        self.key_source().secret()
    }

    /// Where servers are reached that announce other addresses.
    pub(crate) fn address_map(&self) -> Result<Addresses> {
        let mut addresses = Addresses::default();
        for (announced, reached) in &self.address_map {
            addresses.add(announced, reached).map_err(|error| error.within("store.address_map"))?;
        }
        Ok(addresses)
    }

    /// Judges what types cannot say.
    pub(super) fn check(&self) -> Result<()> {
        key::check_prefix(&self.prefix).map_err(|error| error.within("store"))?;
        self.password_source().check()?;
        self.key_source().check()?;
        self.sentinel.password_source().check()?;
        self.address_map()?;
        if self.url.as_ref().is_some_and(|url| url.0.is_empty()) {
            return Err(invalid("store: url is empty; write one such as redis://127.0.0.1:6379, or leave it out"));
        }
        if !(1..=MAX_MAX_KEYS).contains(&self.max_keys) {
            return Err(invalid(format!("store: max_keys is out of range; write 1 to {MAX_MAX_KEYS}")));
        }
        self.breaker.bounds().check().map_err(|problem| invalid(format!("store.breaker: {problem}")))?;
        match &self.tls {
            Some(tls) if tls.certificate.is_some() != tls.key.is_some() => {
                Err(invalid("store.tls: certificate and key belong together; write both or neither"))
            }
            _ => Ok(()),
        }
    }

    fn password_source(&self) -> Source<'_> {
        let (given, file) = (self.password.as_ref(), self.password_file.as_ref());
        Source { table: "store", field: "password", given, file, min_bytes: 1 }
    }

    fn key_source(&self) -> Source<'_> {
        let (given, file) = (self.key_secret.as_ref(), self.key_secret_file.as_ref());
        Source { table: "store", field: "key_secret", given, file, min_bytes: MIN_KEY_SECRET }
    }
}

fn deadline<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    let deadline = deserializer.deserialize_any(Deadline)?;
    if deadline.is_zero() || deadline > Duration::from_millis(MAX_DEADLINE_MS) {
        return Err(D::Error::custom("the deadline is out of range; write 1 ms to 1 minute, as in \"100ms\""));
    }
    Ok(deadline)
}

fn deny_cache_max<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    let max = deserializer.deserialize_any(Deadline)?;
    if max > MAX_DENY_CACHE_MAX {
        return Err(D::Error::custom("deny_cache_max is out of range; write 0 to 1 minute, as in \"1s\""));
    }
    Ok(max)
}

/// Its range is judged with the others of the breaker.
fn wait<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    deserializer.deserialize_any(Deadline)
}

struct Deadline;

impl Visitor<'_> for Deadline {
    type Value = Duration;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a duration such as \"100ms\", or a whole number of milliseconds")
    }

    fn visit_u64<E: serde::de::Error>(self, millis: u64) -> Result<Duration, E> {
        Ok(Duration::from_millis(millis))
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Duration, E> {
        rates::parse_duration(text).map_err(|error| E::custom(error.message()))
    }
}

fn deadline_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({
        "anyOf": [{ "type": "string" }, { "type": "integer", "minimum": 1, "maximum": MAX_DEADLINE_MS }]
    })
}

fn wait_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    let most = MAX_DENY_CACHE_MAX.as_millis() as u64;
    schemars::json_schema!({ "anyOf": [{ "type": "string" }, { "type": "integer", "minimum": 0, "maximum": most }] })
}
