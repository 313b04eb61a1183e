//! Whose address a request has: the peer's, unless a proxy that is trusted says whom it speaks for.
//!
//! ```text
//! X-Forwarded-For: 9.9.9.9, 203.0.113.7, 10.0.0.2     from 10.0.0.1
//!                  forged   the client   <-- trusted -- trusted
//! ```
//!
//! What cannot be read ends the walk where it is: rubbish is counted for the last who is known, never for somebody new.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use ipnet::IpNet;

use super::forwarded::{address, address_before_port, forwarded, is_token, x_forwarded_for};
use super::networks::{Networks, proxies};
use crate::error::{Error, ErrorKind, Result};

/// Who speaks to the server: the other end of the connection, which may be a proxy.
///
/// Made from an [`IpAddr`], a [`SocketAddr`] or none, and from text as frameworks have it: `"203.0.113.7"`,
/// `"203.0.113.7:4711"`, `"[2001:db8::1]:4711"`; `""` and `"unix:"` are a Unix socket, and what cannot be read is unknown.
///
/// ```
/// use tidegate::http::Peer;
/// assert_eq!(Peer::from("[::ffff:203.0.113.7]:4711"), Peer::Address("203.0.113.7".parse().unwrap()));
/// assert_eq!(Peer::from("unix:"), Peer::Unix);
/// ```
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Peer {
    /// Somebody with an address.
    Address(IpAddr),
    /// Somebody on this machine, by a Unix socket.
    Unix,
    /// The server does not say.
    Unknown,
}

impl From<IpAddr> for Peer {
    fn from(address: IpAddr) -> Peer {
        Peer::Address(address)
    }
}

impl From<SocketAddr> for Peer {
    fn from(address: SocketAddr) -> Peer {
        Peer::Address(address.ip())
    }
}

impl From<Option<SocketAddr>> for Peer {
    fn from(address: Option<SocketAddr>) -> Peer {
        address.map_or(Peer::Unknown, Peer::from)
    }
}

impl From<&str> for Peer {
    fn from(text: &str) -> Peer {
        match text.trim() {
            "" | "unix" => Peer::Unix,
            socket if socket.starts_with("unix:") => Peer::Unix,
            text => address(text.as_bytes()).map_or(Peer::Unknown, Peer::Address),
        }
    }
}

const DEFAULT_HEADER: &str = "X-Forwarded-For";
/// Together these are one client: what one machine has for itself.
const DEFAULT_IPV4_PREFIX: u8 = 32;
const DEFAULT_IPV6_PREFIX: u8 = 64;

/// How proxies say whom they speak for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// Each appends.
    XForwardedFor,
    /// Each appends an element (RFC 7239).
    Forwarded,
    /// The outermost sets it, in place of what it was sent.
    Single,
    /// The same, with a port always.
    SingleWithPort,
}

/// How the client's address is told.
#[derive(Debug, Clone)]
pub(crate) struct Client {
    trusted: Networks,
    unix: bool,
    /// The name is in lower case.
    header: Option<(String, Form)>,
    ipv4_prefix: u8,
    ipv6_prefix: u8,
}

impl Client {
    /// # Errors
    /// `invalid_document`: proxies that are no networks, a header without them, a prefix that is not meant.
    pub(crate) fn new(
        trusted: &[String],
        source: Option<&str>,
        ipv4_prefix: Option<u8>,
        ipv6_prefix: Option<u8>,
    ) -> Result<Client> {
        let header = match (source, trusted) {
            (None, []) => None,
            (Some(name), []) => {
                return Err(invalid(format!(
                    "client_address = {name:?} is for requests from proxies, since anybody can send a header; write \
                     their networks as trusted_proxies, such as [\"10.0.0.0/8\"]"
                )));
            }
            (name, _) => Some(header(name.unwrap_or(DEFAULT_HEADER))?),
        };
        let (trusted, unix) = proxies(trusted).map_err(|error| error.within("trusted_proxies"))?;
        Ok(Client {
            trusted,
            unix,
            header,
            ipv4_prefix: prefix("ipv4_prefix", ipv4_prefix.unwrap_or(DEFAULT_IPV4_PREFIX), 8, 32)?,
            ipv6_prefix: prefix("ipv6_prefix", ipv6_prefix.unwrap_or(DEFAULT_IPV6_PREFIX), 32, 128)?,
        })
    }

    /// The one request header that is read, in lower case; none where the peer is all that counts.
    pub(crate) fn header(&self) -> Option<&str> {
        self.header.as_ref().map(|(name, _)| name.as_str())
    }

    /// The client's address, if it is known, and whether it is the client's own: not where it is a proxy's, who does not
    /// say for whom it speaks. `values` are that header's lines, in order.
    pub(crate) fn find(&self, peer: Peer, values: &[&[u8]]) -> (Option<IpAddr>, bool) {
        let (peer, trusted) = match peer {
            Peer::Address(address) => (Some(address.to_canonical()), self.trusted.contain(address)),
            Peer::Unix => (None, self.unix),
            Peer::Unknown => (None, false),
        };
        let (said, is_own) = match self.header.as_ref().filter(|_| trusted) {
            None => (None, true),
            Some((_, Form::XForwardedFor)) => self.walk(x_forwarded_for(values)),
            Some((_, Form::Forwarded)) => self.walk(forwarded(values)),
            Some((_, Form::Single)) => only(single(values).and_then(address)),
            Some((_, Form::SingleWithPort)) => only(single(values).and_then(address_before_port)),
        };
        (said.or(peer), is_own)
    }

    /// The first who is not trusted; else the last of those who can be read.
    fn walk(&self, entries: impl Iterator<Item = Option<IpAddr>>) -> (Option<IpAddr>, bool) {
        let mut known = None;
        for entry in entries {
            let Some(address) = entry else { return (known, false) };
            known = Some(address);
            if !self.trusted.contain(address) {
                break;
            }
        }
        (known, known.is_some())
    }

    /// The address as it stands in keys: the network that counts as one client, or the address where that is all of it.
    pub(crate) fn bucket(&self, address: IpAddr) -> String {
        let address = address.to_canonical();
        let (prefix, whole) = if address.is_ipv4() { (self.ipv4_prefix, 32) } else { (self.ipv6_prefix, 128) };
        if prefix == whole {
            return match address {
                IpAddr::V4(address) => ipv4(address),
                IpAddr::V6(address) => address.to_string(),
            };
        }
        IpNet::new(address, prefix).expect("the prefix was judged").trunc().to_string()
    }
}

/// As its `Display` has it, at a tenth of the instructions: most keys are such addresses.
fn ipv4(address: Ipv4Addr) -> String {
    let (mut text, mut digits) = (String::with_capacity("255.255.255.255".len()), itoa::Buffer::new());
    for (place, octet) in address.octets().into_iter().enumerate() {
        if place > 0 {
            text.push('.');
        }
        text.push_str(digits.format(octet));
    }
    text
}

fn header(name: &str) -> Result<(String, Form)> {
    if name.is_empty() || !name.bytes().all(is_token) {
        return Err(invalid(format!(
            "client_address = {name:?} is no header's name; write one, such as \"X-Forwarded-For\", \"Forwarded\" or \
             \"CF-Connecting-IP\""
        )));
    }
    if name.contains('_') {
        let name = name.trim_start_matches("HTTP_").replace('_', "-");
        return Err(invalid(format!("client_address is a header's own name; write {name:?}")));
    }
    let name = name.to_ascii_lowercase();
    let form = match name.as_str() {
        "x-forwarded-for" => Form::XForwardedFor,
        "forwarded" => Form::Forwarded,
        "cloudfront-viewer-address" => Form::SingleWithPort,
        _ => Form::Single,
    };
    Ok((name, form))
}

fn only(address: Option<IpAddr>) -> (Option<IpAddr>, bool) {
    (address, address.is_some())
}

/// The only value: of several, nobody knows which one the proxy wrote.
fn single<'a>(values: &[&'a [u8]]) -> Option<&'a [u8]> {
    if let [value] = values { Some(value) } else { None }
}

fn prefix(name: &str, length: u8, least: u8, most: u8) -> Result<u8> {
    if (least..=most).contains(&length) {
        return Ok(length);
    }
    Err(invalid(format!("{name} = {length} is not meant; write {least} to {most}")))
}

fn invalid(message: String) -> Error {
    Error::new(ErrorKind::InvalidDocument, message)
}

#[cfg(test)]
mod tests;
