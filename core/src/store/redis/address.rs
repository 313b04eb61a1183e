//! Where a store is: the URL, read once.

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

/// What a URL says.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Location {
    /// The server, or the cluster's seeds.
    pub(crate) addresses: Vec<Address>,
    pub(crate) cluster: bool,
    pub(crate) tls: bool,
    pub(crate) database: u32,
    pub(crate) username: Option<String>,
    pub(crate) password: Option<Secret>,
}

const DEFAULT_PORT: u16 = 6379;
const FORMS: &str = "write redis://host:6379/0, rediss:// for TLS, redis+unix:///path, or \
                     redis+cluster://host:port,host:port (rediss+cluster:// for TLS)";

impl Location {
    /// # Errors
    /// `invalid_document`, without the URL: it may hold a password.
    pub(crate) fn parse(url: &str) -> Result<Location> {
        let (scheme, rest) = url.split_once("://").ok_or_else(|| invalid("the store's url has no scheme"))?;
        let (tls, cluster, unix) = match scheme {
            "redis" => (false, false, false),
            "rediss" => (true, false, false),
            "redis+cluster" => (false, true, false),
            "rediss+cluster" => (true, true, false),
            "redis+unix" | "unix" => (false, false, true),
            // Not quoted if it may be more than a scheme: where that is missing, it is a user and a password.
            other if other.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte)) => {
                return Err(invalid(&format!("the store's url has the unknown scheme {other:?}")));
            }
            _ => return Err(invalid("the store's url has no scheme that is known")),
        };
        // A socket's path may have an @ of its own; there the credentials end before the path begins.
        let end = if unix { rest.find('/').unwrap_or(rest.len()) } else { rest.len() };
        let (credentials, rest) =
            rest[..end].rfind('@').map_or((None, rest), |at| (Some(&rest[..at]), &rest[at + 1..]));
        let (username, password) = credentials.map_or(Ok((None, None)), parse_credentials)?;
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (addresses, database) = if unix {
            parse_unix(rest, query)?
        } else {
            parse_hosts(rest, query, if cluster { usize::MAX } else { 1 })?
        };
        if cluster && database != 0 {
            return Err(invalid("a cluster has database 0 alone"));
        }
        Ok(Location { addresses, cluster, tls, database, username, password })
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

fn parse_unix(path: &str, query: &str) -> Result<(Vec<Address>, u32)> {
    if path.is_empty() {
        return Err(invalid("the url has no path to a socket"));
    }
    let database = match query.split_once('=') {
        None if query.is_empty() => 0,
        Some(("db", number)) => parse_database(number)?,
        _ => return Err(invalid("the url's options are not understood; a socket's database is ?db=0")),
    };
    Ok((vec![Address::Unix(PathBuf::from(path))], database))
}

fn parse_hosts(text: &str, query: &str, most: usize) -> Result<(Vec<Address>, u32)> {
    if !query.is_empty() {
        return Err(invalid("the url has options behind a ?; they go into the document"));
    }
    let (hosts, database) = text.split_once('/').unwrap_or((text, ""));
    let addresses = hosts.split(',').map(parse_host).collect::<Result<Vec<_>>>()?;
    if addresses.len() > most {
        return Err(invalid("several hosts need redis+cluster://"));
    }
    Ok((addresses, if database.is_empty() { 0 } else { parse_database(database)? }))
}

/// `host`, `host:port`, `[v6]` or `[v6]:port`.
fn parse_host(text: &str) -> Result<Address> {
    let (host, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, rest)) => (host, rest.strip_prefix(':')),
        None => text.rsplit_once(':').map_or((text, None), |(host, port)| (host, Some(port))),
    };
    let port = port.map_or(Ok(DEFAULT_PORT), str::parse).ok().filter(|port| *port > 0);
    let in_brackets = text.starts_with('[');
    let legal =
        |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte) || in_brackets && b":%".contains(&byte);
    match port {
        Some(port) if !host.is_empty() && host.bytes().all(legal) => Ok(Address::Tcp { host: host.to_owned(), port }),
        // Without its text: where the @ is missing, that is a password.
        _ => Err(invalid("the url's host and port cannot be read")),
    }
}

fn parse_database(text: &str) -> Result<u32> {
    text.parse().map_err(|_| invalid("what follows the url's host is not a database number"))
}

fn invalid(message: &str) -> Error {
    Error::new(ErrorKind::InvalidDocument, format!("{message}; {FORMS}"))
}
