//! Values of headers and cookies in the simplest of their spellings.
//!
//! Frameworks differ in what they trim, unquote and decode. A client must not get a bucket of its own by a spelling that
//! the application takes for the same, so all that any of them undoes is undone here. To put two values into one bucket
//! that an application tells apart costs little; the other way round costs the limit. Parsers of cookies are made to keep
//! apart what browsers do, which is why there is none here.

/// A header's value: trimmed, with white space inside as one space, and the scheme of `Authorization` in lower case.
pub(super) fn header(name: &str, line: &[u8]) -> Vec<u8> {
    let words = trimmed(line).split(|byte| *byte <= b' ').filter(|word| !word.is_empty());
    let mut plain = words.collect::<Vec<_>>().join(&b' ');
    if name == "authorization" {
        let scheme = plain.iter().position(|byte| *byte == b' ').unwrap_or(0);
        plain[..scheme].make_ascii_lowercase();
    }
    or_foreign(plain, line)
}

/// The values of a cookie in one header.
pub(super) fn cookies<'a>(line: &'a [u8], name: &'a str) -> impl Iterator<Item = Vec<u8>> + 'a {
    line.split(|byte| *byte == b';').filter_map(move |pair| {
        let equals = pair.iter().position(|byte| *byte == b'=')?;
        (trimmed(&pair[..equals]) == name.as_bytes()).then(|| cookie(&pair[equals + 1..]))
    })
}

/// A cookie's value without quotes, with `%XX` and the backslash's escapes undone.
pub(super) fn cookie(value: &[u8]) -> Vec<u8> {
    let mut rest = trimmed(value);
    while let [b'"', inner @ ..] = rest {
        rest = trimmed(inner.strip_suffix(b"\"").unwrap_or(inner));
    }
    rest = rest.strip_suffix(b"\"").unwrap_or(rest);
    let mut plain = Vec::with_capacity(rest.len());
    while let [first, after @ ..] = rest {
        let (byte, taken) = match (first, after) {
            (b'%', [high, low, ..]) => match (hex(*high), hex(*low)) {
                (Some(high), Some(low)) => (high << 4 | low, 2),
                _ => (b'%', 0),
            },
            (b'\\', [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', ..]) => {
                ((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'), 3)
            }
            (b'\\', [next, ..]) => (*next, 1),
            _ => (*first, 0),
        };
        plain.push(byte);
        rest = &after[taken..];
    }
    or_foreign(trimmed(&plain).to_vec(), if plain.is_empty() { value } else { &plain })
}

/// A value of which nothing is left is not one that is missing, if it was more than white space: all such are one.
fn or_foreign(plain: Vec<u8>, value: &[u8]) -> Vec<u8> {
    if plain.is_empty() && value.iter().any(|byte| *byte > 0x7f) { vec![FOREIGN] } else { plain }
}

/// No other value is this alone: it is trimmed away.
const FOREIGN: u8 = 0xff;

/// Without what anybody trims at the ends: controls, spaces, and all that is not ASCII, which has spaces of its own.
fn trimmed(bytes: &[u8]) -> &[u8] {
    let Some(from) = bytes.iter().position(|byte| !is_space(*byte)) else { return &[] };
    let to = bytes.iter().rposition(|byte| !is_space(*byte)).unwrap_or(from);
    &bytes[from..=to]
}

fn is_space(byte: u8) -> bool {
    byte <= b' ' || byte >= 0x7f
}

pub(super) fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_of_a_cookie_is_the_same() {
        let spellings: &[&[u8]] = &[
            b"s=S1",
            b"a=b; s=S1; c=d",
            b" s = S1 ",
            b"s=\"S1\"",
            b"s=\" S1 \"",
            b"s=\"\"S1\"\"",
            b"s=S1\"",
            b"s=%531",
            b"s=\"\\1231\"",
            b"s=\"\\S1\"",
            b"s=S1\xa0\xa0",
            b"\x1fs=\x1cS1\x1f",
            b"\xa0s\xa0=S1",
            b"s=S1\xc2\xa0",
            b"s=S1%20",
            b"s=S1\t;",
        ];
        for line in spellings {
            assert_eq!(cookies(line, "s").collect::<Vec<_>>(), [b"S1"], "{:?}", String::from_utf8_lossy(line));
        }
        for line in [&b"S=S1"[..], b"xs=S1", b"s", b"=S1", b"", b";;;", b"%73=S1"] {
            assert_eq!(cookies(line, "s").count(), 0, "{:?}", String::from_utf8_lossy(line));
        }
    }

    #[test]
    fn every_spelling_of_a_header_is_the_same() {
        for line in [&b"Bearer S"[..], b"bearer  S", b" BEARER\tS ", b"Bearer S\xa0", b"Bearer \x1f S"] {
            assert_eq!(header("authorization", line), b"bearer S", "{:?}", String::from_utf8_lossy(line));
        }
        assert_eq!(header("x-api-key", b" K1 "), b"K1");
        assert_ne!(header("x-api-key", b"k1"), b"K1");
        assert_ne!(header("x-api-key", b"a\xc3\xa9b"), header("x-api-key", b"a b"));
    }

    #[test]
    fn what_is_not_ascii_at_all_is_not_missing() {
        let (one, other) = ("\u{e9}".as_bytes(), "\u{1f30a}\u{e9}".as_bytes());
        assert!(header("x-api-key", one) == header("x-api-key", other) && !header("x-api-key", one).is_empty());
        assert!(cookie(one) == cookie(other) && cookie(b"%C3%A9") == cookie(one) && !cookie(one).is_empty());
        assert!(header("x-api-key", b" \t ").is_empty() && cookie(b"\" \"").is_empty());
    }
}
