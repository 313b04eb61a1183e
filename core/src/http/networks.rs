//! Sets of networks: the proxies that are trusted, and those who are exempt.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

use crate::error::{Error, ErrorKind, Result};

const LOOPBACK: [IpNet; 2] = [v4([127, 0, 0, 0], 8), v6(1, 128)];
const PRIVATE: [IpNet; 4] =
    [v4([10, 0, 0, 0], 8), v4([172, 16, 0, 0], 12), v4([192, 168, 0, 0], 16), v6(0xfc << 120, 7)];
/// The word for a Unix socket, which has no address.
const UNIX: &str = "unix";
/// The shortest prefixes of trusted proxies: those of the largest private networks.
const WIDEST: (u8, u8) = (8, 7);

const fn v4(octets: [u8; 4], prefix: u8) -> IpNet {
    let [a, b, c, d] = octets;
    IpNet::new_assert(IpAddr::V4(Ipv4Addr::new(a, b, c, d)), prefix)
}

const fn v6(bits: u128, prefix: u8) -> IpNet {
    IpNet::new_assert(IpAddr::V6(Ipv6Addr::from_bits(bits)), prefix)
}

/// Networks without overlaps, in order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Networks(Vec<IpNet>);

impl Networks {
    fn new(networks: &Vec<IpNet>) -> Networks {
        let mut networks = IpNet::aggregate(networks);
        networks.sort_unstable_by_key(IpNet::network);
        Networks(networks)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the address is in one of them. A mapped address is the IPv4 address that it stands for.
    pub(crate) fn contain(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        let after = self.0.partition_point(|network| network.network() <= address);
        after.checked_sub(1).is_some_and(|last| self.0[last].contains(&address))
    }
}

/// Networks, single addresses, and the words `loopback` and `private`.
///
/// # Errors
/// `invalid_document` for what is none of them, and for a network that is written with bits of one host.
pub(crate) fn networks(texts: &[String]) -> Result<Networks> {
    if texts.iter().any(|text| text == UNIX) {
        return Err(invalid(
            "\"unix\" stands for no address, and is for trusted_proxies alone; leave it out".to_owned(),
        ));
    }
    Ok(Networks::new(&read_all(texts)?))
}

/// Proxies: networks as above, and whether Unix sockets are among them.
///
/// # Errors
/// As above, and for a network that no one's proxies fill: whoever is in it may choose the address that he is taken for.
pub(crate) fn proxies(texts: &[String]) -> Result<(Networks, bool)> {
    let (unix, texts): (Vec<_>, Vec<_>) = texts.iter().cloned().partition(|text| text == UNIX);
    for text in &texts {
        for network in read(text)? {
            let widest = if network.addr().is_ipv4() { WIDEST.0 } else { WIDEST.1 };
            if network.prefix_len() < widest {
                return Err(invalid(format!(
                    "{text:?} trusts strangers: everybody in it could choose the address that he is limited by; write \
                     the networks of your proxies alone, such as \"10.0.0.0/8\", none wider than an IPv4 /{} or an \
                     IPv6 /{}",
                    WIDEST.0, WIDEST.1
                )));
            }
        }
    }
    Ok((Networks::new(&read_all(&texts)?), !unix.is_empty()))
}

fn read_all(texts: &[String]) -> Result<Vec<IpNet>> {
    Ok(texts.iter().map(|text| read(text)).collect::<Result<Vec<_>>>()?.concat())
}

fn read(text: &str) -> Result<Vec<IpNet>> {
    match text {
        "loopback" => return Ok(LOOPBACK.to_vec()),
        "private" => return Ok(PRIVATE.to_vec()),
        _ => {}
    }
    let network = parse(text).ok_or_else(|| {
        invalid(format!(
            "{text:?} is no network; write an address such as \"10.1.2.3\", a network such as \"10.0.0.0/8\" or \
             \"2001:db8::/32\", \"loopback\", \"private\", or of proxies on a socket \"unix\""
        ))
    })?;
    if network.addr() != network.network() {
        let (whole, host) = (network.trunc(), network.addr());
        return Err(invalid(format!(
            "{text:?} is one address and a network at once; write \"{whole}\" for the network, or \"{host}\" for the \
             address"
        )));
    }
    Ok(vec![network])
}

/// Of a mapped network, the IPv4 network.
fn parse(text: &str) -> Option<IpNet> {
    let (address, prefix) = text.split_once('/').map_or((text, None), |(address, prefix)| (address, Some(prefix)));
    let address: IpAddr = address.parse().ok()?;
    let Some(prefix) = prefix else { return Some(IpNet::from(address.to_canonical())) };
    let prefix: u8 = prefix.parse().ok().filter(|number: &u8| number.to_string() == prefix)?;
    match address.to_canonical() {
        v4 @ IpAddr::V4(_) if address.is_ipv6() && prefix >= 96 => IpNet::new(v4, prefix - 96).ok(),
        _ => IpNet::new(address, prefix).ok(),
    }
}

fn invalid(message: String) -> Error {
    Error::new(ErrorKind::InvalidDocument, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owned(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|&text| text.to_owned()).collect()
    }

    #[test]
    fn addresses_are_found_in_networks_however_these_are_written() {
        for (texts, inside, outside) in [
            (&["10.0.0.0/8"][..], "10.255.255.255 10.0.0.0 ::ffff:10.1.2.3", "9.255.255.255 11.0.0.0 ::a00:1"),
            (&["10.1.2.3"], "10.1.2.3", "10.1.2.2 10.1.2.4"),
            (&["2001:db8::/32"], "2001:db8:: 2001:db8:ffff::1", "2001:db7:ffff::1 2001:db9:: 32.1.13.184"),
            (&["::ffff:10.0.0.0/104"], "10.1.2.3 ::ffff:10.1.2.3", "11.0.0.0 ::1"),
            (&["::ffff:10.1.2.3"], "10.1.2.3", "10.1.2.4"),
            (&["loopback"], "127.0.0.1 127.255.0.1 ::1", "128.0.0.1 ::2 ::"),
            (&["private"], "10.0.0.1 172.31.255.255 192.168.0.1 fd00::1", "172.32.0.0 192.169.0.0 fe80::1 169.254.0.1"),
            (
                &["10.0.0.0/8", "10.1.0.0/16", "10.1.2.3", "12.0.0.0/8"],
                "10.0.0.1 10.1.2.3 12.0.0.0",
                "11.0.0.1 13.0.0.0",
            ),
            (&["0.0.0.0/0"], "0.0.0.0 255.255.255.255", "::1 2001:db8::1"),
            (&["::/0"], ":: ::1 2001:db8::1", "1.2.3.4 ::ffff:1.2.3.4"),
            (&[], "", "0.0.0.0 ::"),
        ] {
            let networks = networks(&owned(texts)).unwrap();
            let all = |list: &str, expected: bool| {
                for address in list.split_whitespace() {
                    assert_eq!(networks.contain(address.parse().unwrap()), expected, "{address} in {texts:?}");
                }
            };
            all(inside, true);
            all(outside, false);
        }
    }

    #[test]
    fn what_is_no_network_is_refused_with_what_to_write() {
        for (text, say) in [
            ("10.0.0.1/8", "write \"10.0.0.0/8\" for the network, or \"10.0.0.1\""),
            ("::ffff:10.0.0.1/104", "write \"10.0.0.0/8\" for the network, or \"10.0.0.1\""),
            ("2001:db8::1/64", "write \"2001:db8::/64\" for the network, or \"2001:db8::1\""),
            ("10.0.0.0/33", "write an address"),
            ("10.0.0.0/08", "write an address"),
            ("10.0.0.0/+8", "write an address"),
            ("10.0.0.0/255.0.0.0", "write an address"),
            ("10.0.0.0/8/8", "write an address"),
            ("10.0.0", "write an address"),
            ("010.0.0.1", "write an address"),
            ("10.0.0.1:80", "write an address"),
            ("fe80::1%eth0", "write an address"),
            ("localhost", "\"loopback\""),
            ("Loopback", "\"loopback\""),
            (" 10.0.0.1", "write an address"),
            ("", "write an address"),
            ("unix", "trusted_proxies alone"),
        ] {
            let error = networks(&owned(&["10.0.0.1", text])).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidDocument);
            assert!(error.message().contains(say), "{text}: {error}");
        }
    }

    #[test]
    fn nobody_trusts_the_internet() {
        for text in ["0.0.0.0/0", "::/0", "0.0.0.0/1", "128.0.0.0/1", "8.0.0.0/7", "2000::/3", "::ffff:0.0.0.0/96"] {
            let error = proxies(&owned(&[text])).unwrap_err();
            assert!(error.message().contains("trusts strangers"), "{text}: {error}");
        }
        let (all, unix) = proxies(&owned(&["unix", "10.0.0.0/8", "fc00::/7", "private", "loopback"])).unwrap();
        assert!(unix && all.contain("fd00::1".parse().unwrap()));
        assert_eq!(proxies(&[]).unwrap(), (Networks::default(), false));
    }
}
