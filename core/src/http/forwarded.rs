//! Addresses as proxies write them into request headers.
//!
//! Each proxy appends to what it was sent, so only the right end is known to be a proxy's, and the reading begins there.
//! What has been read never depends on what stands left of it: an open quote or a backslash of a stranger's swallows
//! nothing.

use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr};

/// Entries of `X-Forwarded-For` from the right, over all its lines; none for one that cannot be read.
pub(crate) fn x_forwarded_for<'a>(lines: &'a [&'a [u8]]) -> impl Iterator<Item = Option<IpAddr>> {
    lines.iter().rev().flat_map(|line| line.rsplit(|&byte| byte == b',')).map(address)
}

/// Whom the elements of `Forwarded` (RFC 7239) are for, from the right, over all its lines; none for one that cannot be
/// read, and then it has no more of that line.
pub(crate) fn forwarded<'a>(lines: &'a [&'a [u8]]) -> impl Iterator<Item = Option<IpAddr>> {
    lines.iter().rev().flat_map(|&line| Elements { rest: Some(line) })
}

struct Elements<'a> {
    /// What stands before the elements that were read; none behind the last.
    rest: Option<&'a [u8]>,
}

impl Iterator for Elements<'_> {
    type Item = Option<IpAddr>;

    fn next(&mut self) -> Option<Option<IpAddr>> {
        let (address, rest) = last_element(self.rest.take()?).unzip();
        self.rest = rest.flatten();
        Some(address)
    }
}

/// Whom the last element is for, and what stands before its comma, if there is one.
fn last_element(text: &[u8]) -> Option<(IpAddr, Option<&[u8]>)> {
    let mut rest = text.trim_ascii_end();
    let mut node: Option<Cow<'_, [u8]>> = None;
    loop {
        match rest.split_last() {
            None => return Some((address(&node?)?, None)),
            Some((b',', before)) => return Some((address(&node?)?, Some(before))),
            Some((b';', before)) => rest = before.trim_ascii_end(),
            Some(_) => {
                let (before, name, value) = last_pair(rest)?;
                rest = before.trim_ascii_end();
                let apart = rest.last().is_none_or(|byte| b",;".contains(byte));
                let again = name.eq_ignore_ascii_case(b"for") && node.replace(value).is_some();
                if again || !apart {
                    return None;
                }
            }
        }
    }
}

/// What stands before a `name=value`, its name, its value.
type Pair<'a> = (&'a [u8], &'a [u8], Cow<'a, [u8]>);

fn last_pair(text: &[u8]) -> Option<Pair<'_>> {
    let (before, value) = match text.strip_suffix(b"\"") {
        Some(text) => last_quoted(text)?,
        None => {
            let (before, value) = last_run(text, is_unquoted);
            (before, value.into())
        }
    };
    let (before, name) = last_run(before.strip_suffix(b"=")?, is_token);
    (!name.is_empty()).then_some((before, name, value))
}

/// What stands before the last quote that opens, and what that quote encloses. `text` ends before the closing one.
///
/// Inside, each quote is behind an odd number of backslashes; the opening one is behind none, since `=` is before it.
fn last_quoted(text: &[u8]) -> Option<(&[u8], Cow<'_, [u8]>)> {
    let backslashes = |text: &[u8]| text.iter().rev().take_while(|&&byte| byte == b'\\').count();
    if backslashes(text) % 2 == 1 {
        return None;
    }
    let mut end = text.len();
    loop {
        let at = text[..end].iter().rposition(|&byte| byte == b'"')?;
        match backslashes(&text[..at]) {
            0 => return Some((&text[..at], unescaped(&text[at + 1..]))),
            odd if odd % 2 == 1 => end = at - odd,
            _ => return None,
        }
    }
}

fn unescaped(text: &[u8]) -> Cow<'_, [u8]> {
    if !text.contains(&b'\\') {
        return text.into();
    }
    let (mut plain, mut rest) = (Vec::with_capacity(text.len()), text.iter().copied());
    while let Some(byte) = rest.next() {
        plain.push(if byte == b'\\' { rest.next().unwrap_or(byte) } else { byte });
    }
    plain.into()
}

/// Parts the text before the bytes at its end that are all of a kind.
fn last_run(text: &[u8], kind: fn(u8) -> bool) -> (&[u8], &[u8]) {
    text.split_at(text.iter().rposition(|&byte| !kind(byte)).map_or(0, |last| last + 1))
}

/// RFC 9110, 5.6.2: what names of headers and parameters are made of.
pub(crate) fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// What a value without quotes is made of: more than a token, since some proxies quote neither ports nor brackets.
fn is_unquoted(byte: u8) -> bool {
    !byte.is_ascii_control() && !b" ,;=\"\\".contains(&byte)
}

/// An address with or without white space, brackets, a zone and a port. A mapped address is an IPv4 address.
pub(crate) fn address(text: &[u8]) -> Option<IpAddr> {
    let text = readable(text)?;
    if text.starts_with('[') {
        let (host, port) = text.split_once(']')?;
        return (port.is_empty() || port.strip_prefix(':').is_some_and(is_port)).then(|| bracketed(host)).flatten();
    }
    let with_port = || text.split_once(':').filter(|(_, port)| is_port(port))?.0.parse::<Ipv4Addr>().ok();
    bare(text).or_else(|| with_port().map(IpAddr::V4))
}

/// An address with a port always, and IPv6 with or without brackets: `2001:db8::1:46532`.
pub(crate) fn address_before_port(text: &[u8]) -> Option<IpAddr> {
    let (host, _) = readable(text)?.rsplit_once(':').filter(|(_, port)| is_port(port))?;
    host.strip_suffix(']').map_or_else(|| bare(host), bracketed)
}

fn readable(text: &[u8]) -> Option<&str> {
    str::from_utf8(text.trim_ascii()).ok()
}

/// `[v6`, behind which the bracket is closed.
fn bracketed(text: &str) -> Option<IpAddr> {
    let text = text.strip_prefix('[')?;
    text.contains(':').then(|| bare(text)).flatten()
}

/// `v4`, `v6`, `v6%zone`.
fn bare(text: &str) -> Option<IpAddr> {
    let address: IpAddr = match text.split_once('%') {
        Some((address, zone)) if !zone.is_empty() && zone.bytes().all(is_obfuscated) => {
            IpAddr::V6(address.parse().ok()?)
        }
        Some(_) => return None,
        None => text.parse().ok()?,
    };
    Some(address.to_canonical())
}

/// A number, or a name in its place (RFC 7239, 6.3).
fn is_port(text: &str) -> bool {
    match text.strip_prefix('_') {
        Some(name) => !name.is_empty() && name.bytes().all(is_obfuscated),
        None => (1..=5).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit()),
    }
}

fn is_obfuscated(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"._-".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Option<String> {
        address(text.as_bytes()).map(|address| address.to_string())
    }

    #[test]
    fn addresses_are_read_in_all_the_forms_that_proxies_write() {
        for (text, expected) in [
            ("1.2.3.4", "1.2.3.4"),
            (" \t1.2.3.4 ", "1.2.3.4"),
            ("1.2.3.4:8080", "1.2.3.4"),
            ("1.2.3.4:_port", "1.2.3.4"),
            ("::ffff:1.2.3.4", "1.2.3.4"),
            ("::FFFF:102:304", "1.2.3.4"),
            ("[::ffff:1.2.3.4]:80", "1.2.3.4"),
            ("2001:DB8:0:0::1", "2001:db8::1"),
            ("[2001:db8::1]", "2001:db8::1"),
            ("[2001:db8::1]:443", "2001:db8::1"),
            ("fe80::1%eth0", "fe80::1"),
            ("[fe80::1%eth0.7]:80", "fe80::1"),
            ("::1:80", "::1:80"),
        ] {
            assert_eq!(read(text).as_deref(), Some(expected), "{text}");
        }
    }

    #[test]
    fn rubbish_is_no_address() {
        for text in [
            "",
            " ",
            "-",
            "unknown",
            "_hidden",
            "localhost",
            "example.com",
            "1.2.3",
            "1.2.3.4.5",
            "01.2.3.4",
            "0x7f.0.0.1",
            "256.1.1.1",
            "16909060",
            "1.2.3.4:",
            "1.2.3.4:x",
            "1.2.3.4:123456",
            "1.2.3.4:80:80",
            "1.2.3.4:+80",
            "1.2.3.4 80",
            "1.2.3.4%eth0",
            "[1.2.3.4]",
            "[1.2.3.4]:80",
            "[::1",
            "::1]",
            "[::1]80",
            "[::1]:",
            "[]",
            "[]:80",
            "[",
            "]",
            "[[::1]]",
            "::1%",
            "::1%a b",
            "::1%é",
            "%",
            ":::1",
            "1::2::3",
            "1:2:3:4:5:6:7:8:9",
            "::ffff:1.2.3.04",
            "1.2.3.4/32",
            "\"1.2.3.4\"",
            "１.2.3.4",
            "1.2.3.4\0",
            "1.2.3.4;5.6.7.8",
        ] {
            assert_eq!(read(text), None, "{text}");
        }
        assert_eq!(address(b"1.2.3.4\xff"), None);
        assert_eq!(address(&[b'1'; 65_536]), None);
    }

    #[test]
    fn a_port_that_is_always_there_is_taken_off_an_address_without_brackets() {
        for (text, expected) in [
            ("2001:db8::1:46532", Some("2001:db8::1")),
            ("2001:db8:1:2:3:4:5:6:46532", Some("2001:db8:1:2:3:4:5:6")),
            ("[2001:db8::1]:46532", Some("2001:db8::1")),
            ("::ffff:1.2.3.4:80", Some("1.2.3.4")),
            (" 198.51.100.10:46532 ", Some("198.51.100.10")),
            ("198.51.100.10", None),
            ("2001:db8:1:2:3:4:5:6", None),
            ("[2001:db8::1]", None),
            ("2001:db8::1]:80", None),
            ("[2001:db8::1:80", None),
            ("2001:db8::1:", None),
            (":80", None),
            ("", None),
        ] {
            let found = address_before_port(text.as_bytes()).map(|address| address.to_string());
            assert_eq!(found.as_deref(), expected, "{text}");
        }
    }

    /// The elements as they are read: from the right, up to the first that is rubbish, which is `-`.
    fn elements(lines: &[&str]) -> String {
        let lines: Vec<_> = lines.iter().map(|line| line.as_bytes()).collect();
        let mut found = Vec::new();
        for element in forwarded(&lines) {
            found.push(element.map_or_else(|| "-".to_owned(), |address| address.to_string()));
            if element.is_none() {
                break;
            }
        }
        found.join(" ")
    }

    #[test]
    fn elements_of_forwarded_are_read_from_the_right() {
        for (line, expected) in [
            ("for=1.2.3.4", "1.2.3.4"),
            ("For=1.2.3.4;Proto=https;by=10.0.0.1", "1.2.3.4"),
            ("proto=https ; FOR=\"1.2.3.4:80\" ;", "1.2.3.4"),
            ("for=1.1.1.1, for=2.2.2.2,for=\"[2001:db8::1]:80\"", "2001:db8::1 2.2.2.2 1.1.1.1"),
            ("for=2001:db8::1;host=a.example:80", "2001:db8::1"),
            ("for=[2001:db8::1]:80", "2001:db8::1"),
            (r#"for="1\.2.3\.4""#, "1.2.3.4"),
            // What stands in quotes separates nothing.
            (r#"for=1.2.3.4;host="a, for=9.9.9.9; for=8.8.8.8""#, "1.2.3.4"),
            (r#"for=1.2.3.4;host="a\", for=\"9.9.9.9""#, "1.2.3.4"),
            (r#"for=1.2.3.4;host="a\\\", for=9.9.9.9\\""#, "1.2.3.4"),
            (r#"host="";for=1.2.3.4"#, "1.2.3.4"),
            // What a stranger leaves open does not reach what was appended.
            (r#"for=", for=1.2.3.4"#, "1.2.3.4 -"),
            (r#"for="\, for=1.2.3.4"#, "1.2.3.4 -"),
            (r#"for=", for="1.2.3.4""#, "1.2.3.4 -"),
            (r#"for="\", for="[::1]:80""#, "::1 -"),
            (r#"\, for="1.2.3.4""#, "1.2.3.4 -"),
            // Rubbish.
            ("", "-"),
            (",", "-"),
            ("for=1.2.3.4,", "-"),
            (", for=1.2.3.4", "1.2.3.4 -"),
            ("for=9.9.9.9, proto=http", "-"),
            ("for=9.9.9.9, for=unknown", "-"),
            ("for=9.9.9.9, for=_hidden", "-"),
            ("for=9.9.9.9, for=\"_hidden:80\"", "-"),
            ("for=9.9.9.9, for=", "-"),
            ("for=9.9.9.9, for", "-"),
            ("for=9.9.9.9, =1.2.3.4", "-"),
            ("for=9.9.9.9, for =1.2.3.4", "-"),
            ("for=9.9.9.9, for= 1.2.3.4", "-"),
            ("for=9.9.9.9, for=1.2.3.4 proto=http", "-"),
            ("for=9.9.9.9, for=\"1.2.3.4\"proto=http", "-"),
            ("for=9.9.9.9, for=1.2.3.4;for=1.2.3.4", "-"),
            ("for=9.9.9.9, for=1.2.3.4;proto=a=b", "-"),
            (r#"for=9.9.9.9, for=1.2.3.4""#, "-"),
            (r#"for=9.9.9.9, for="1.2.3.4\""#, "-"),
            (r#"for=9.9.9.9, host="a\\"b";for=1.2.3.4"#, "-"),
            (r#"for=9.9.9.9, for=1.2.3.4;host="a\""#, "-"),
            ("xfor=1.2.3.4", "-"),
            ("1.2.3.4", "-"),
        ] {
            assert_eq!(elements(&[line]), expected, "{line}");
        }
        assert_eq!(elements(&["for=1.1.1.1, for=2.2.2.2", "for=3.3.3.3"]), "3.3.3.3 2.2.2.2 1.1.1.1");
        assert_eq!(elements(&["for=\"", "for=3.3.3.3"]), "3.3.3.3 -");
    }

    #[test]
    fn long_headers_are_read_once() {
        // Were each quote or backslash looked at again for every one behind it, these would take minutes.
        let long = 1 << 20;
        for text in [r#"\""#, r#"""#, r"\", ";", ",", "=", "a=", r#"a="";"#, "for=1.1.1.1,", r#"for="\""#] {
            let line = text.repeat(long) + "\"";
            let lines = [line.as_bytes()];
            let read = |addresses: &mut dyn Iterator<Item = Option<IpAddr>>| addresses.map_while(|entry| entry).count();
            assert_eq!(read(&mut forwarded(&lines)) + read(&mut x_forwarded_for(&lines)), 0, "{text}");
        }
    }
}
