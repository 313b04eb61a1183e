//! Keys: each is stored under the name that its definition says, and no two share a state.

use std::borrow::Cow;
use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest as _, Sha256};
use tidegate::{Document, ErrorKind, Key, Limiter, Receipt};

const LONGEST: usize = 64 * 1024;

/// Two keys, one after the other. Of each: a byte for how many parts it has, and of each part its length, how often it
/// is repeated, and its bytes.
pub fn key(data: &[u8]) {
    let mut rest = data;
    let (one, other) = (Given::read(&mut rest), Given::read(&mut rest));
    let limiter = Limiter::builder().rule("r", "1/h").max_keys(16).build().expect("the rule is one");
    let stored = one.check(&limiter);
    assert_eq!(stored, one.expected(), "{one:?}");
    // The other has had its turn if it is the same, and has a turn of its own if not.
    let same = one.parts == other.parts;
    let expected = other.expected().filter(|_| !same);
    assert_eq!(other.check(&limiter), expected, "{one:?} and {other:?}");
    secret(&one, &other);
}

/// With a secret nothing of the key is to be seen, and the same holds.
fn secret(one: &Given, other: &Given) {
    let document = "version = 1\nstore.key_secret = \"sixteen bytes or more\"\nrules.r = \"1/h\"";
    let document = Document::from_toml(document).expect("the document is one");
    let limiter = Limiter::builder().document(&document).build().expect("the document is one");
    let first = one.check(&limiter);
    assert_eq!(first.is_some(), one.is_key());
    assert!(first.as_ref().is_none_or(|subject| subject.starts_with('$') && subject.len() == 44), "{first:?}");
    let second = other.check(&limiter);
    assert_eq!(second.is_some(), other.is_key() && one.parts != other.parts);
    assert!(first.is_none() || first != second);
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
            part.repeat(if times < 250 { 1 } else { usize::from(times - 249) * 300 })
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
        let escaped: Vec<String> = self.parts.iter().map(|part| escaped(part)).collect();
        let plain = escaped.join(",");
        let short = plain.len() <= 64;
        self.is_key()
            .then(|| if short { plain } else { format!("~{}", URL_SAFE_NO_PAD.encode(Sha256::digest(&plain))) })
    }
}

fn byte(rest: &mut &[u8]) -> u8 {
    rest.split_off_first().copied().unwrap_or_default()
}

fn escaped(part: &[u8]) -> String {
    let mut text = String::new();
    for &byte in part {
        match char::from(byte) {
            plain @ ('A'..='Z' | 'a'..='z' | '0'..='9' | '_' | '.' | '@' | '+' | '-') => text.push(plain),
            _ => write!(text, "%{byte:02X}").expect("a text takes all"),
        }
    }
    text
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
