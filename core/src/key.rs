//! Stored keys: `<prefix>:<format>:{<subject>}:<rule>:<algorithm>:<window>`, and `:<name>` for a named limit (law 10).
//!
//! | form of the subject | when | written as |
//! |---|---|---|
//! | plain | up to 64 bytes once escaped | the bytes `A-Z a-z 0-9 _ . @ + -` as they are, any other as `%XX` |
//! | parts | made by [`Key::parts`] | its parts in that form, joined by `,` |
//! | digest | longer than that | `~` and the SHA-256 of the form above, base64url |
//! | HMAC | with a secret | `$` and the HMAC-SHA-256 of the form above, base64url |
//!
//! No form begins like another, and what separates is escaped inside parts, so none can be taken for another.

use std::fmt::Write as _;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{KeyInit as _, Mac as _};
use sha2::Digest as _;
use smallvec::SmallVec;

use crate::error::{Error, ErrorKind, Result};

/// The version of the keys and values that this release reads and writes.
const FORMAT: &str = "1";
/// The longest name of a rule or limit, in bytes.
pub(crate) const MAX_NAME: usize = 64;
const MAX_PLAIN: usize = 64;
/// The longest key, in bytes.
const MAX_KEY: usize = 64 * 1024;

/// Who is limited: a user, an address, an API key. Any 1 to 65,536 bytes; several parts stay apart.
///
/// ```
/// use tidegate::Key;
/// let plain = Key::from("alice");
/// let parts = Key::parts(["tenant 7", "alice"]);
/// assert_ne!(Key::parts(["a,b", "c"]), Key::parts(["a", "b,c"]));
/// # let _ = (plain, parts);
/// ```
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Key {
    escaped: Escaped,
    /// The bytes that were given; 0 where nothing was, or one part of several is empty.
    length: usize,
}

type Escaped = SmallVec<[u8; 24]>;

impl Key {
    /// A key of several parts, such as a tenant and a user. `("a/b", "c")` and `("a", "b/c")` are different keys.
    pub fn parts<I>(parts: I) -> Key
    where
        I: IntoIterator,
        I::Item: AsRef<[u8]>,
    {
        let (mut escaped, mut length, mut empty) = (Escaped::new(), 0, false);
        for (index, part) in parts.into_iter().enumerate() {
            if index > 0 {
                escaped.push(b',');
            }
            empty |= part.as_ref().is_empty();
            length += part.as_ref().len();
            escape(part.as_ref(), &mut escaped);
        }
        Key { escaped, length: if empty { 0 } else { length } }
    }

    /// The key as people read it, for the log of those who ask for that.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.escaped).into_owned()
    }

    /// The subject as it stands in stored keys.
    #[inline]
    pub(crate) fn into_subject(self, secret: Option<&[u8]>) -> Result<Subject> {
        if self.length > 0 && secret.is_none() && self.escaped.len() <= MAX_PLAIN {
            return Ok(Subject(self.escaped));
        }
        self.digested(secret)
    }

    /// The subject of a key that does not stand as it is.
    #[cold]
    fn digested(self, secret: Option<&[u8]>) -> Result<Subject> {
        if self.length == 0 {
            return Err(Error::new(
                ErrorKind::InvalidRequest,
                "the key is empty: everybody without one would share a limit; pass who is limited, or do not check",
            ));
        }
        if self.length > MAX_KEY {
            return Err(Error::new(ErrorKind::InvalidRequest, "the key is longer than 64 KiB; pass a digest of it"));
        }
        if let Some(secret) = secret {
            let mut mac = hmac::Hmac::<sha2::Sha256>::new_from_slice(secret)
                .map_err(|_| Error::new(ErrorKind::InvalidRequest, "the secret cannot be used as an HMAC key"))?;
            mac.update(&self.escaped);
            return Ok(marked(b'$', &mac.finalize().into_bytes()));
        }
        Ok(marked(b'~', &sha2::Sha256::digest(&self.escaped)))
    }
}

impl<T: AsRef<[u8]> + ?Sized> From<&T> for Key {
    fn from(bytes: &T) -> Key {
        let bytes = bytes.as_ref();
        let mut escaped = Escaped::new();
        escape(bytes, &mut escaped);
        Key { escaped, length: bytes.len() }
    }
}

impl From<String> for Key {
    fn from(text: String) -> Key {
        Key::from(text.as_bytes())
    }
}

impl From<&Key> for Key {
    fn from(key: &Key) -> Key {
        key.clone()
    }
}

/// A key in the form in which it is stored: printable, without braces and colons.
#[derive(PartialEq, Eq, Hash)]
pub(crate) struct Subject(Escaped);

/// As derived, but at once: a SmallVec clones byte by byte.
impl Clone for Key {
    fn clone(&self) -> Key {
        Key { escaped: Escaped::from_slice(&self.escaped), length: self.length }
    }
}

impl Clone for Subject {
    fn clone(&self) -> Subject {
        Subject(Escaped::from_slice(&self.0))
    }
}

impl std::fmt::Debug for Subject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        String::from_utf8_lossy(&self.0).fmt(f)
    }
}

impl Subject {
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// A subject read back from a receipt.
    pub(crate) fn stored(bytes: &[u8]) -> Option<Subject> {
        let legal = |byte: &u8| is_plain(*byte) || matches!(byte, b'%' | b',' | b'~' | b'$');
        (!bytes.is_empty() && bytes.iter().all(legal)).then(|| Subject(bytes.into()))
    }

    /// `<prefix>:<format>:{<subject>}`, which routes the call and begins each of its keys.
    pub(crate) fn base(&self, prefix: &str) -> String {
        let subject = String::from_utf8_lossy(&self.0);
        // Once for each check: joined by hand, which takes a third of what formatting does.
        [prefix, ":", FORMAT, ":{", &subject, "}"].concat()
    }
}

/// The end of a stored key, `:<rule>:<algorithm>:<window>` and `:<name>` for a named limit, with its hash.
#[derive(Debug, Clone)]
pub(crate) struct Suffix {
    text: Arc<str>,
    hash: u64,
}

impl Suffix {
    pub(crate) fn new(rule: &str, algorithm: &str, window_ms: u64, name: Option<&str>) -> Suffix {
        let mut text = String::from(":");
        push_escaped(&mut text, rule);
        let _ = write!(text, ":{algorithm}:{window_ms}");
        if let Some(name) = name {
            text.push(':');
            push_escaped(&mut text, name);
        }
        Suffix::stored(&text)
    }

    /// A suffix read back from a receipt.
    pub(crate) fn stored(text: &str) -> Suffix {
        // FNV-1a: suffixes are the operator's, so nobody chooses collisions.
        let hash = text
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
        Suffix { text: text.into(), hash }
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }
}

impl PartialEq for Suffix {
    fn eq(&self, other: &Suffix) -> bool {
        // Nearly always the very same limit asks.
        Arc::ptr_eq(&self.text, &other.text) || (self.hash == other.hash && self.text == other.text)
    }
}

impl Eq for Suffix {}

impl std::fmt::Display for Suffix {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

/// The milliseconds for which a key outlives its meaning: at most min(W, 60 s) + 1 s (law 8).
pub(crate) fn slack(window_ms: u64) -> u64 {
    window_ms.min(60_000) + 1_000
}

/// A prefix that is 1 to 64 of `A-Z a-z 0-9 _ . : -`.
pub(crate) fn check_prefix(prefix: &str) -> Result<()> {
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || b"_.:-".contains(&byte);
    if prefix.is_empty() || prefix.len() > 64 || !prefix.bytes().all(legal) {
        return Err(Error::new(
            ErrorKind::InvalidDocument,
            format!("prefix {prefix:?} cannot be used; write 1 to 64 of A-Z a-z 0-9 _ . : -"),
        ));
    }
    Ok(())
}

fn is_plain(byte: u8) -> bool {
    PLAIN[usize::from(byte)]
}

/// Which bytes stand in stored keys as they are.
const PLAIN: [bool; 256] = {
    let mut plain = [false; 256];
    let mut byte = 0_u8;
    while byte < 128 {
        plain[byte as usize] =
            matches!(byte, b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'_' | b'.' | b'@' | b'+' | b'-');
        byte += 1;
    }
    plain
};

/// Without an early end, this is a few steps for each byte.
#[inline]
fn are_plain(bytes: &[u8]) -> bool {
    bytes.iter().fold(true, |plain, byte| plain & PLAIN[usize::from(*byte)])
}

fn escape(bytes: &[u8], into: &mut Escaped) {
    // Most keys need no escape at all.
    if are_plain(bytes) {
        into.extend_from_slice(bytes);
    } else {
        escape_each(bytes, into);
    }
}

#[cold]
fn escape_each(bytes: &[u8], into: &mut Escaped) {
    for &byte in bytes {
        if is_plain(byte) {
            into.push(byte);
        } else {
            into.extend_from_slice(&[b'%', hex(byte >> 4), hex(byte & 15)]);
        }
    }
}

fn push_escaped(text: &mut String, name: &str) {
    let mut escaped = Escaped::new();
    escape(name.as_bytes(), &mut escaped);
    text.push_str(&String::from_utf8_lossy(&escaped));
}

fn hex(nibble: u8) -> u8 {
    b"0123456789ABCDEF"[usize::from(nibble)]
}

fn marked(mark: u8, digest: &[u8]) -> Subject {
    let mut subject = Escaped::new();
    subject.push(mark);
    subject.extend_from_slice(URL_SAFE_NO_PAD.encode(digest).as_bytes());
    Subject(subject)
}
