//! Keys: each is stored under the name that its definition says, and no two share a state.

use std::borrow::Cow;
use std::sync::LazyLock;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest as _, Sha256};
use tidegate::{Document, ErrorKind, Key, Limiter, Receipt};

use super::bytes::byte;

const LONGEST: usize = 64 * 1024;

/// Two keys, one after the other. Of each: a byte for how many parts it has, and of each part its length, 255 if
/// it is repeated 300 times, and its bytes.
pub fn key(data: &[u8]) {
    let mut rest = data;
    let (one, other) = (Given::read(&mut rest), Given::read(&mut rest));
    // The other has had its turn if it is the same, and has a turn of its own if not.
    let turn = one.parts != other.parts;
    let [first, second] = subjects(&PLAIN, &one, &other);
    assert_eq!(first, one.expected(), "{one:?}");
    assert_eq!(second, other.expected().filter(|_| turn), "{one:?} and {other:?}");
    // With a secret nothing of a key is to be seen, and the same holds.
    let [first, second] = subjects(&SECRET, &one, &other);
    assert_eq!((first.is_some(), second.is_some()), (one.is_key(), other.is_key() && turn), "{one:?} and {other:?}");
    assert!(first.is_none() || first != second, "{one:?} and {other:?}");
    let mut hashed = [first, second].into_iter().flatten();
    assert!(hashed.all(|subject| subject.starts_with('$') && subject.len() == 44), "{one:?} and {other:?}");
}

static PLAIN: LazyLock<Limiter> = LazyLock::new(|| limiter(""));
static SECRET: LazyLock<Limiter> = LazyLock::new(|| limiter("store.key_secret = \"sixteen bytes or more\""));

/// Whoever has had a turn has none for an hour.
fn limiter(store: &str) -> Limiter {
    let document = Document::from_toml(&format!("version = 1\nrules.r = \"1/h\"\n{store}")).expect("it is a document");
    Limiter::builder().document(&document).build().expect("memory is there")
}

/// What is charged by one after the other.
fn subjects(limiter: &Limiter, one: &Given, other: &Given) -> [Option<String>; 2] {
    for given in [one, other] {
        assert_eq!(limiter.reset("r", given.key()).wait().is_ok(), given.is_key(), "{given:?}");
    }
    [one.check(limiter), other.check(limiter)]
}

#[derive(Debug)]
struct Given {
    whole: bool,
    parts: Vec<Vec<u8>>,
}

impl Given {
    fn read(rest: &mut &[u8]) -> Given {
        let count = usize::from(byte(rest) % 5);
        let whole = count == 0;
        let parts = (0..count.max(1)).map(|_| {
            let (length, times) = (usize::from(byte(rest)).min(rest.len()), byte(rest));
            let (part, after) = rest.split_at(length.min(rest.len()));
            *rest = after;
            part.repeat(if times == u8::MAX { 300 } else { 1 })
        });
        Given { whole, parts: parts.collect() }
    }

    fn key(&self) -> Key {
        if self.whole { Key::from(&self.parts[0]) } else { Key::parts(&self.parts) }
    }

    fn is_key(&self) -> bool {
        self.parts.iter().all(|part| !part.is_empty()) && self.parts.iter().map(Vec::len).sum::<usize>() <= LONGEST
    }

    /// The subject as its receipt says; none if it is refused.
    fn check(&self, limiter: &Limiter) -> Option<String> {
        match limiter.check("r", self.key()).wait() {
            Ok(decision) => decision.allowed().then(|| subject(&decision.receipt())),
            Err(error) => {
                assert!(error.kind() == ErrorKind::InvalidRequest && !self.is_key(), "{self:?}: {error}");
                None
            }
        }
    }

    /// The definition, in words of its own: `core/src/key.rs` has the table.
    fn expected(&self) -> Option<String> {
        if !self.is_key() {
            return None;
        }
        let plain = self.parts.iter().map(|part| escaped(part)).collect::<Vec<_>>().join(",");
        let short = plain.len() <= 64;
        Some(if short { plain } else { format!("~{}", URL_SAFE_NO_PAD.encode(Sha256::digest(&plain))) })
    }
}

fn escaped(part: &[u8]) -> String {
    let mut text = String::new();
    for &byte in part {
        match char::from(byte) {
            plain @ ('A'..='Z' | 'a'..='z' | '0'..='9' | '_' | '.' | '@' | '+' | '-') => text.push(plain),
            _ => text.extend(['%', hex(byte >> 4), hex(byte & 15)]),
        }
    }
    text
}

fn hex(nibble: u8) -> char {
    char::from_digit(nibble.into(), 16).expect("four bits are a digit").to_ascii_uppercase()
}

/// Behind the version, the number and the prefix of a receipt.
fn subject(receipt: &Receipt) -> String {
    let bytes = URL_SAFE_NO_PAD.decode(receipt.to_string()).expect("a receipt is base64url");
    let (prefix, rest) = text(&bytes[9..]);
    assert_eq!(prefix, "tidegate");
    text(rest).0.into_owned()
}

fn text(bytes: &[u8]) -> (Cow<'_, str>, &[u8]) {
    let (length, rest) = bytes.split_at(2);
    let (text, rest) = rest.split_at(usize::from(u16::from_be_bytes([length[0], length[1]])));
    (String::from_utf8_lossy(text), rest)
}
