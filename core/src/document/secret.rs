//! What must not be seen: passwords, secrets, and URLs that hold one.

use std::fmt;
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::Deserialize;

use super::invalid;
use crate::error::Result;

/// A text that no `Debug` output shows.
#[derive(Clone, PartialEq, Eq, Hash, Deserialize, JsonSchema)]
#[schemars(inline)]
pub(crate) struct Secret(String);

impl Secret {
    pub(crate) fn new(text: impl Into<String>) -> Secret {
        Secret(text.into())
    }

    /// The text itself, for the one place that needs it.
    pub(crate) fn expose(&self) -> &str {
        &self.0
    }

    /// The same as bytes, for an HMAC.
    pub(crate) fn bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }

    /// The text of a file without the line's end that editors put last.
    pub(crate) fn read(path: &Path) -> Result<Secret> {
        let text = std::fs::read_to_string(path).map_err(|error| invalid(format!("cannot be read: {error}")))?;
        let line = text.strip_suffix('\n').unwrap_or(&text);
        Ok(Secret::new(line.strip_suffix('\r').unwrap_or(line)))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("\"***\"")
    }
}

/// Where a secret is written: in the document, or in a file that is read whenever it is asked for.
#[derive(Debug)]
pub(super) struct Source<'a> {
    pub(super) table: &'static str,
    pub(super) field: &'static str,
    pub(super) given: Option<&'a Secret>,
    pub(super) file: Option<&'a PathBuf>,
    pub(super) min_bytes: usize,
}

impl Source<'_> {
    /// Judges what can be judged without the file.
    pub(super) fn check(&self) -> Result<()> {
        match (self.given, self.file) {
            (Some(_), Some(_)) => {
                Err(invalid(format!("{1}: {0} and {0}_file are both there; write one of them", self.field, self.table)))
            }
            (Some(secret), None) => self.long_enough(secret).map_err(|error| error.within(self.table)),
            (None, _) => Ok(()),
        }
    }

    pub(super) fn secret(&self) -> Result<Option<Secret>> {
        let Some(path) = self.file else { return Ok(self.given.cloned()) };
        let judged = Secret::read(path).and_then(|secret| self.long_enough(&secret).map(|()| secret));
        judged.map(Some).map_err(|error| error.within(format!("{}_file {}", self.field, path.display())))
    }

    fn long_enough(&self, secret: &Secret) -> Result<()> {
        let (bytes, least) = (secret.0.len(), self.min_bytes);
        if bytes < least {
            return Err(invalid(format!("{} has {bytes} bytes; write at least {least}, or leave it out", self.field)));
        }
        Ok(())
    }
}

/// A store's URL, which may hold a password.
#[derive(Clone, PartialEq, Eq, Hash, Deserialize, JsonSchema)]
#[schemars(inline)]
pub(crate) struct Url(pub(super) String);

impl fmt::Debug for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", redacted(&self.0))
    }
}

/// The URL without its password and its query, for logs and errors. A text that is no URL rather loses too much.
pub(crate) fn redacted(url: &str) -> String {
    let (scheme, rest) = url.split_at(url.find("://").map_or(0, |colon| colon + 3));
    // A password may hold a bare `@`, so the last one ends it; a `?` before that leaves both in doubt.
    let (login, host) = match rest.rsplit_once('@') {
        None if has_plain_hosts(rest) => (String::new(), rest),
        Some((login, host)) if !login.contains('?') => (redacted_login(login), host),
        _ => return format!("{scheme}***"),
    };
    match host.split_once('?') {
        None => format!("{scheme}{login}{host}"),
        Some((host, _)) => format!("{scheme}{login}{host}?***"),
    }
}

fn redacted_login(login: &str) -> String {
    match login.split_once(':') {
        None => "***@".to_owned(),
        Some((user, _)) => format!("{user}:***@"),
    }
}

/// Whether this begins with hosts, each with a port if anything: another colon may be of a login that lost its `@`.
fn has_plain_hosts(rest: &str) -> bool {
    let plain = |host: &str| {
        let address = host.strip_prefix('[').and_then(|ipv6| ipv6.split_once(']'));
        let host_and_port = address.map_or(host, |(_, port)| port);
        host_and_port.split_once(':').is_none_or(|(_, port)| port.parse::<u16>().is_ok())
    };
    rest.split(['/', '?']).next().unwrap_or_default().split(',').all(plain)
}
