//! The client's address: nothing that a stranger sends makes him somebody else.

use std::net::{IpAddr, Ipv6Addr};
use std::sync::LazyLock;

use tidegate::Document;
use tidegate::http::{Peer, Policy};

use super::bytes::byte;

const STRANGER: &str = "203.0.113.7";
const PROXY: &str = "10.0.0.1";

/// A header that is read, and what a proxy writes into it for the stranger; none where it sets the header itself.
const HEADERS: [(&str, &[&str]); 5] = [
    ("X-Forwarded-For", &["203.0.113.7", "[::ffff:203.0.113.7]:80, 10.0.0.3 ,10.0.0.2:81"]),
    (
        "Forwarded",
        &[
            "for=203.0.113.7",
            "for=\"203.0.113.7:80\";host=\"a\\\\\\\", for=9.9.9.9\", for=10.0.0.2;by=\"\"",
            "for=203.0.113.7;host=\"\\\", for=9.9.9.9\"",
        ],
    ),
    ("X-Real-IP", &[]),
    ("CF-Connecting-IP", &[]),
    ("CloudFront-Viewer-Address", &[]),
];

static POLICIES: LazyLock<Vec<Policy>> = LazyLock::new(|| HEADERS.iter().map(|(header, _)| policy(header)).collect());

fn policy(header: &str) -> Policy {
    let document = format!(
        "version = 1\nrules.r = '1/s'\nhttp.trusted_proxies = ['10.0.0.0/8', 'unix']\nhttp.client_address = '{header}'\n\
         http.default = {{ rules = 'r', key = 'ip', without_identity = 'refuse' }}"
    );
    let document = Document::from_toml(&document).expect("it is a document");
    Policy::new(&document).expect("memory is there")
}

/// A byte for the header, one for how the proxy adds to it, and the header's lines; the same text is a peer's, too.
pub fn address(data: &[u8]) {
    let mut rest = data;
    let (place, how) = (usize::from(byte(&mut rest)) % HEADERS.len(), byte(&mut rest));
    let (policy, (header, entries)) = (&POLICIES[place], HEADERS[place]);
    let forged: Vec<Vec<u8>> = rest.split(|&byte| byte == b'\n').map(<[u8]>::to_vec).collect();
    let told = |peer: Peer, lines: &[Vec<u8>]| client(policy, header, peer, lines);

    assert_eq!(told(STRANGER.into(), &forged), Some(STRANGER.into()), "a stranger is not believed");
    assert_eq!(told(Peer::Unknown, &forged), None, "nobody is not believed");
    // What a proxy might have written: read without a panic, and well.
    let _ = (told(PROXY.into(), &forged), told(Peer::Unix, &forged));

    let mut lines = forged;
    if entries.is_empty() {
        lines.push(STRANGER.into());
        assert_eq!(told(PROXY.into(), &lines), Some(PROXY.into()), "nobody knows which line is the proxy's");
        assert_eq!(told(Peer::Unix, &lines), None, "nobody knows which line is the proxy's");
    } else {
        append(&mut lines, entries[usize::from(how >> 2) % entries.len()], how);
        for proxy in [PROXY.into(), Peer::Unix] {
            assert_eq!(told(proxy, &lines), Some(STRANGER.into()), "what the proxy appended stands");
        }
    }
    peer(policy, &String::from_utf8_lossy(rest));
}

/// Behind a comma on the last line, or on a line of its own.
fn append(lines: &mut Vec<Vec<u8>>, entry: &str, how: u8) {
    let comma = [None, Some(","), Some(", "), Some("\t, ")][usize::from(how & 3)];
    match (lines.last_mut(), comma) {
        (Some(line), Some(comma)) => line.extend([comma, entry].concat().bytes()),
        _ => lines.push(entry.into()),
    }
}

/// Any text is a peer, and a mapped address is none of its own.
fn peer(policy: &Policy, text: &str) {
    let address = policy.request("GET", "/").peer(text).client_address();
    assert_eq!(address, address.map(|address| address.to_canonical()), "{text:?}");
}

/// The client as it stands in keys.
fn client(policy: &Policy, header: &str, peer: Peer, lines: &[Vec<u8>]) -> Option<String> {
    let request = policy.request("GET", "/").peer(peer);
    let request = lines.iter().fold(request, |request, line| request.header(header, line));
    let (address, key) = (request.client_address(), request.client_key());
    let expected = address.map(|address| match address {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => {
            assert_eq!(address.to_ipv4_mapped(), None, "a mapped address is an IPv4 address");
            format!("{}/64", Ipv6Addr::from_bits(address.to_bits() >> 64 << 64))
        }
    });
    assert_eq!(key, expected, "an IPv6 network is one client");
    key
}
