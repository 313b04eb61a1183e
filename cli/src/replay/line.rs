//! One line of a log, in the common format or in the combined one, which goes on after it:
//!
//! ```text
//! 203.0.113.7 - alice [17/May/2015:10:05:03 +0000] "GET /a?b=1 HTTP/1.1" 200 512 "https://example.org/" "Mozilla/5.0"
//! ```

use jiff::Timestamp;

/// What a line says about its request.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Line<'a> {
    /// Seconds since 1970, which is as fine as these formats are. Until 2106, and so half the size in memory.
    pub(super) at: u32,
    pub(super) host: &'a [u8],
    /// None for `-`: nobody logged in.
    pub(super) user: Option<&'a [u8]>,
    /// Without the query; none if the request line is no request (a port scan, a closed connection).
    pub(super) path: Option<&'a [u8]>,
}

const TIME: &str = "%d/%b/%Y:%H:%M:%S %z";

impl<'a> Line<'a> {
    /// None if it is no line of these formats.
    pub(super) fn parse(line: &'a [u8]) -> Option<Line<'a>> {
        let (host, rest) = cut(line, b" ")?;
        let (_ident, rest) = cut(rest, b" ")?;
        // A user's name may have spaces, so it ends where the time begins.
        let (user, rest) = cut(rest, b" [")?;
        let (time, rest) = cut(rest, b"] \"")?;
        let request = quoted(rest)?;
        let at = Timestamp::strptime(TIME, time).ok()?.as_second();
        let named = !host.is_empty() && !user.is_empty();
        named.then_some(Line {
            at: u32::try_from(at).ok()?,
            host,
            user: Some(user).filter(|user| *user != b"-"),
            path: path(request),
        })
    }
}

/// What stands before a separator and after it.
fn cut<'a>(bytes: &'a [u8], separator: &[u8]) -> Option<(&'a [u8], &'a [u8])> {
    let at = bytes.windows(separator.len()).position(|window| window == separator)?;
    Some((&bytes[..at], &bytes[at + separator.len()..]))
}

/// What stands before the closing quote; one behind a backslash closes nothing.
fn quoted(bytes: &[u8]) -> Option<&[u8]> {
    let mut escaped = false;
    let end = bytes.iter().position(|byte| {
        let closes = *byte == b'"' && !escaped;
        escaped = *byte == b'\\' && !escaped;
        closes
    })?;
    Some(&bytes[..end])
}

/// The path of `GET /path?query HTTP/1.1`.
fn path(request: &[u8]) -> Option<&[u8]> {
    let (_method, rest) = cut(request, b" ")?;
    let target = cut(rest, b" ").map_or(rest, |(target, _version)| target);
    let path = cut(target, b"?").map_or(target, |(path, _query)| path);
    (!path.is_empty()).then_some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Option<Line<'_>> {
        Line::parse(line.as_bytes())
    }

    #[test]
    fn reads_both_formats() {
        let common = r#"203.0.113.7 - alice [17/May/2015:10:05:03 +0000] "GET /a?b=1 HTTP/1.1" 200 512"#;
        let expected = Line { at: 1_431_857_103, host: b"203.0.113.7", user: Some(b"alice"), path: Some(b"/a") };
        assert_eq!(parse(common).as_ref(), Some(&expected));
        assert_eq!(parse(&format!(r#"{common} "-" "Mozilla/5.0 (\"x\")""#)), Some(expected));
    }

    #[test]
    fn reads_what_servers_really_write() {
        let at = |line| parse(line).expect(line).at;
        let zone = r#"2001:db8::1 - - [17/May/2015:12:05:03 +0200] "GET / HTTP/2.0" 200 1"#;
        assert_eq!((at(zone), parse(zone).expect(zone).host), (1_431_857_103, &b"2001:db8::1"[..]));
        let spaced =
            parse(r#"::1 - John "J" Doe [17/May/2015:10:05:03 +0000] "GET / HTTP/1.1" 200 1"#).expect("a name");
        assert_eq!(spaced.user, Some(&br#"John "J" Doe"#[..]));
        for (request, path) in [
            ("-", None),
            ("", None),
            (r"\x16\x03\x01", None),
            ("GET  HTTP/1.1", None),
            ("GET /old", Some("/old")),
            (r#"GET /\"quoted\" HTTP/1.1"#, Some(r#"/\"quoted\""#)),
            (r"GET /ends\\ HTTP/1.1", Some(r"/ends\\")),
            ("OPTIONS * HTTP/1.1", Some("*")),
        ] {
            let line = format!(r#"::1 - - [17/May/2015:10:05:03 +0000] "{request}" 400 0 "-" "-""#);
            assert_eq!(parse(&line).expect(request).path, path.map(str::as_bytes), "{request}");
        }
    }

    #[test]
    fn refuses_what_is_no_such_line() {
        for line in [
            "",
            "hello",
            "2015/05/17 10:05:03 [error] 7#7: *1 open() failed",
            r#"::1 - - [17/May/2015:10:05:03] "GET / HTTP/1.1" 200 1"#,
            r#"::1 - - [31/Feb/2015:10:05:03 +0000] "GET / HTTP/1.1" 200 1"#,
            r#"::1 - - [17/May/1969:10:05:03 +0000] "GET / HTTP/1.1" 200 1"#,
            r#"::1 - - [17/May/2015:10:05:03 +0000] "GET /cut"#,
            r#" - - [17/May/2015:10:05:03 +0000] "GET / HTTP/1.1" 200 1"#,
        ] {
            assert_eq!(parse(line), None, "{line}");
        }
    }
}
