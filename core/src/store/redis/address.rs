//! Where a store is: the URL, read once.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use percent_encoding::percent_decode_str;

use crate::document::Secret;
use crate::error::{Error, ErrorKind, Result};

/// One server.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Address {
    Tcp { host: String, port: u16 },
    Unix(PathBuf),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Address::Tcp { host, port } => write!(f, "{host}:{port}"),
            Address::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

/// What stands behind a URL's addresses.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    /// One server. It may turn out to be a node of a cluster.
    Server,
    Cluster,
    /// Sentinels, which know the primary under this name.
    Sentinel(String),
}

/// What a URL says.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Location {
    /// The server, the cluster's seeds, or the sentinels.
    pub(crate) addresses: Vec<Address>,
    pub(crate) kind: Kind,
    pub(crate) tls: bool,
    pub(crate) database: u32,
    pub(crate) username: Option<String>,
    pub(crate) password: Option<Secret>,
}

const DEFAULT_PORT: u16 = 6379;
const DEFAULT_SENTINEL_PORT: u16 = 26379;
const FORMS: &str = "write redis://host:6379/0, rediss:// for TLS, redis+unix:///path, \
                     redis+cluster://host:port,host:port, or redis+sentinel://host:26379,host:26379/name/0 \
                     (rediss+cluster:// and rediss+sentinel:// for TLS)";

/// The form of a URL, before anything stands in it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Server,
    Cluster,
    Sentinel,
    Unix,
}

impl Location {
    /// # Errors
    /// `invalid_document`, without the URL: it may hold a password.
    pub(crate) fn parse(url: &str) -> Result<Location> {
        let (scheme, rest) = url.split_once("://").ok_or_else(|| invalid("the store's url has no scheme"))?;
        let (tls, form) = match scheme {
            "redis" => (false, Form::Server),
            "rediss" => (true, Form::Server),
            "redis+cluster" => (false, Form::Cluster),
            "rediss+cluster" => (true, Form::Cluster),
            "redis+sentinel" => (false, Form::Sentinel),
            "rediss+sentinel" => (true, Form::Sentinel),
            "redis+unix" | "unix" => (false, Form::Unix),
            // Not quoted if it may be more than a scheme: where that is missing, it is a user and a password.
            other if other.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte)) => {
                return Err(invalid(&format!("the store's url has the unknown scheme {other:?}")));
            }
            _ => return Err(invalid("the store's url has no scheme that is known")),
        };
        // A socket's path may have an @ of its own; there the credentials end before the path begins.
        let end = if form == Form::Unix { rest.find('/').unwrap_or(rest.len()) } else { rest.len() };
        let (credentials, rest) =
            rest[..end].rfind('@').map_or((None, rest), |at| (Some(&rest[..at]), &rest[at + 1..]));
        let (username, password) = credentials.map_or(Ok((None, None)), parse_credentials)?;
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        if form != Form::Unix && !query.is_empty() {
            return Err(invalid("the url has options behind a ?; they go into the document"));
        }
        let (kind, addresses, database) = match form {
            Form::Unix => parse_unix(rest, query)?,
            Form::Server => parse_server(rest)?,
            Form::Cluster => parse_cluster(rest)?,
            Form::Sentinel => parse_sentinels(rest)?,
        };
        Ok(Location { addresses, kind, tls, database, username, password })
    }
}

fn parse_credentials(text: &str) -> Result<(Option<String>, Option<Secret>)> {
    let (user, password) = text.split_once(':').map_or((text, None), |(user, password)| (user, Some(password)));
    let decoded = |text: &str| {
        let decoded = percent_decode_str(text).decode_utf8();
        decoded.map(|text| text.into_owned()).map_err(|_| invalid("the url's user or password is not UTF-8"))
    };
    Ok((Some(decoded(user)?).filter(|user| !user.is_empty()), password.map(decoded).transpose()?.map(Secret::new)))
}

/// What a URL leads to: of which kind, where, and which database.
type Place = (Kind, Vec<Address>, u32);

fn parse_unix(path: &str, query: &str) -> Result<Place> {
    if path.is_empty() {
        return Err(invalid("the url has no path to a socket"));
    }
    let database = match query.split_once('=') {
        None if query.is_empty() => 0,
        Some(("db", number)) => parse_database(number)?,
        _ => return Err(invalid("the url's options are not understood; a socket's database is ?db=0")),
    };
    Ok((Kind::Server, vec![Address::Unix(PathBuf::from(path))], database))
}

fn parse_server(text: &str) -> Result<Place> {
    let (host, database) = text.split_once('/').unwrap_or((text, ""));
    let addresses = parse_hosts(host, DEFAULT_PORT)?;
    if addresses.len() > 1 {
        return Err(invalid("several hosts need redis+cluster:// or redis+sentinel://"));
    }
    Ok((Kind::Server, addresses, parse_database(database)?))
}

fn parse_cluster(text: &str) -> Result<Place> {
    let (hosts, database) = text.split_once('/').unwrap_or((text, ""));
    let addresses = parse_hosts(hosts, DEFAULT_PORT)?;
    if parse_database(database)? != 0 {
        return Err(invalid("a cluster has database 0 alone"));
    }
    Ok((Kind::Cluster, addresses, 0))
}

/// `host:port,host:port/name/database`.
fn parse_sentinels(text: &str) -> Result<Place> {
    let (hosts, rest) = text.split_once('/').unwrap_or((text, ""));
    let addresses = parse_hosts(hosts, DEFAULT_SENTINEL_PORT)?;
    let (name, database) = rest.split_once('/').unwrap_or((rest, ""));
    // Sentinels take no other names.
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    if name.is_empty() || !name.bytes().all(legal) {
        return Err(invalid("the url must say, behind the sentinels, under which name they know the primary"));
    }
    Ok((Kind::Sentinel(name.to_owned()), addresses, parse_database(database)?))
}

fn parse_hosts(text: &str, default_port: u16) -> Result<Vec<Address>> {
    let host = |text| {
        // Without its text: where the @ is missing, that is a password.
        let (host, port) = split_host(text).ok_or_else(|| invalid("the url's host and port cannot be read"))?;
        Ok(Address::Tcp { host: host.to_owned(), port: port.unwrap_or(default_port) })
    };
    text.split(',').map(host).collect()
}

/// `host`, `host:port`, `[v6]` or `[v6]:port`.
fn split_host(text: &str) -> Option<(&str, Option<u16>)> {
    let (host, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, "")) => (host, None),
        Some((host, rest)) => (host, Some(rest.strip_prefix(':')?)),
        None => text.rsplit_once(':').map_or((text, None), |(host, port)| (host, Some(port))),
    };
    let port = port.map(str::parse).transpose().ok()?;
    let in_brackets = text.starts_with('[');
    let legal =
        |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte) || in_brackets && b":%".contains(&byte);
    (port != Some(0) && !host.is_empty() && host.bytes().all(legal)).then_some((host, port))
}

/// The first database where nothing is written.
fn parse_database(text: &str) -> Result<u32> {
    if text.is_empty() {
        return Ok(0);
    }
    text.parse().map_err(|_| invalid("what follows the url's host is not a database number"))
}

/// Where servers are reached that announce other addresses: from behind a NAT, or out of a container.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(crate) struct Addresses(BTreeMap<(String, Option<u16>), (String, Option<u16>)>);

impl Addresses {
    /// Adds an announced `host:port` and where it is reached, or a host alone, which keeps its ports.
    ///
    /// # Errors
    /// `invalid_document`. What cannot be read is not quoted: it may be a URL with a password.
    pub(crate) fn add(&mut self, announced: &str, reached: &str) -> Result<()> {
        let write = "write host:port for host:port, or a host for a host, with IPv6 in brackets";
        let refused = |problem: String| Error::new(ErrorKind::InvalidDocument, format!("{problem}; {write}"));
        let (host, port) =
            split_host(announced).ok_or_else(|| refused("an announced address cannot be read".into()))?;
        let (to, to_port) =
            split_host(reached).ok_or_else(|| refused(format!("where {announced} is reached cannot be read")))?;
        if port.is_some() != to_port.is_some() {
            return Err(refused(format!("only one of {announced} and where it is reached has a port")));
        }
        self.0.insert((host.to_ascii_lowercase(), port), (to.to_owned(), to_port));
        Ok(())
    }

    /// Where a server is reached that announces this.
    pub(super) fn reached(&self, host: String, port: u16) -> Address {
        if self.0.is_empty() {
            return Address::Tcp { host, port };
        }
        let found = |port| self.0.get(&(host.to_ascii_lowercase(), port));
        match found(Some(port)).or_else(|| found(None)) {
            Some((to, to_port)) => Address::Tcp { host: to.clone(), port: to_port.unwrap_or(port) },
            None => Address::Tcp { host, port },
        }
    }
}

fn invalid(message: &str) -> Error {
    Error::new(ErrorKind::InvalidDocument, format!("{message}; {FORMS}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_of_sentinels_say_whom_to_ask_for_which_primary() {
        let url = "rediss+sentinel://app:p%40ss@a,b:7000,[::1]:7001/my.primary-1/3";
        let location = Location::parse(url).expect("a url");
        let shown: Vec<String> = location.addresses.iter().map(Address::to_string).collect();
        assert_eq!(shown, ["a:26379", "b:7000", "[::1]:7001"]);
        assert_eq!(location.kind, Kind::Sentinel("my.primary-1".into()));
        assert_eq!((location.tls, location.database, location.username.as_deref()), (true, 3, Some("app")));
        assert_eq!(location.password.expect("it has one").expose(), "p@ss");
        let plain = Location::parse("redis+sentinel://a/main").expect("a url");
        assert_eq!((plain.tls, plain.database, plain.password), (false, 0, None));
    }

    #[test]
    fn urls_that_cannot_be_meant_say_what_to_write_and_no_secret() {
        for url in [
            "redis+sentinel://a:26379",
            "redis+sentinel://a:26379/",
            "redis+sentinel://a:26379//0",
            "redis+sentinel://a:26379/main/x",
            "redis+sentinel://a:26379/main/0/1",
            "redis+sentinel://a:26379/two words",
            "redis+sentinel://a:26379/main?db=1",
            "redis+sentinel:///main",
            "redis+sentinel://a,,b/main",
            "redis+sentinel://user:hunter2/main",
            "redis+sentinel://user:hunter2@/main",
            "redis+sentinel://user:hunter2@a",
            "redis+sentinel://user:hunter2@a:0/main",
            "redis+sentinel://[::1]26379/main",
            "redis+cluster://a/1",
            "redis://a,b",
            "redis-sentinel://a/main",
        ] {
            let error = Location::parse(url).expect_err(url);
            assert_eq!(error.kind(), ErrorKind::InvalidDocument);
            assert!(error.message().contains("redis+sentinel://host:26379,host:26379/name/0"), "{url}: {error}");
            assert!(!error.message().contains("hunter2"), "{error}");
        }
    }

    #[test]
    fn announced_addresses_are_mapped_with_their_port_first_and_once() {
        let mut addresses = Addresses::default();
        for (announced, reached) in [
            ("10.0.0.1:6379", "127.0.0.1:7001"),
            ("10.0.0.1", "nat.example.org"),
            ("nat.example.org", "elsewhere"),
            ("Node-B.example", "[::1]"),
            ("[fe80::2]:7004", "b:1"),
        ] {
            addresses.add(announced, reached).expect(announced);
        }
        for (host, port, reached) in [
            ("10.0.0.1", 6379, "127.0.0.1:7001"),
            ("10.0.0.1", 6380, "nat.example.org:6380"),
            ("node-b.Example", 5, "[::1]:5"),
            ("fe80::2", 7004, "b:1"),
            ("fe80::2", 7005, "[fe80::2]:7005"),
            ("10.0.0.2", 6379, "10.0.0.2:6379"),
        ] {
            assert_eq!(addresses.reached(host.into(), port).to_string(), reached);
        }
    }

    #[test]
    fn addresses_that_cannot_be_meant_are_refused_without_a_secret() {
        for (announced, reached) in [
            ("", "a"),
            ("a", ""),
            ("a:1", "b"),
            ("a", "b:1"),
            ("a:0", "b:1"),
            ("a:1", "b:65536"),
            ("fe80::2", "b"),
            ("redis://:hunter2@a:1", "b:1"),
            ("a:1", "redis://:hunter2@b:1"),
        ] {
            let error = Addresses::default().add(announced, reached).expect_err(announced);
            assert_eq!(error.kind(), ErrorKind::InvalidDocument);
            assert!(error.message().contains("write host:port for host:port"), "{error}");
            assert!(!error.message().contains("hunter2"), "{error}");
        }
    }
}
