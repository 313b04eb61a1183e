//! Receipts: what `refund` takes.

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::error::{Error, ErrorKind, Result};
use crate::key::{Subject, Suffix};
use crate::request_id::RequestId;
use crate::rule::{Algorithm, MAX_UNITS};

/// What one admitted check charged. Give it to [`Limiter::refund`](crate::Limiter::refund) to take the charge back.
///
/// Small, opaque, and text in both directions (`to_string`, `parse`), so it can be kept with the request. The first
/// refund spends it within this process, copies included; across processes it is the caller's duty to refund once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Receipt {
    pub(crate) nonce: u64,
    pub(crate) prefix: String,
    pub(crate) subject: Subject,
    pub(crate) charges: Vec<Charge>,
}

/// What was charged to one limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Charge {
    pub(crate) algorithm: Algorithm,
    /// The end of the stored key.
    pub(crate) suffix: Suffix,
    /// Microseconds.
    pub(crate) window: u64,
    /// The time of the charge, in microseconds since 1970.
    pub(crate) at: u64,
    pub(crate) units: u32,
    /// Of the bucket: the rate it was charged with, and the deficit before it in units and window-ths of a unit.
    pub(crate) rate: u32,
    pub(crate) before: u32,
    pub(crate) before_parts: u64,
    /// Of the log.
    pub(crate) id: RequestId,
}

impl Receipt {
    /// Whether it charged nothing, as a repeat's receipt.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.charges.is_empty()
    }

    /// The times of the charges by the store's clock, in microseconds since 1970.
    pub fn charged_at(&self) -> impl Iterator<Item = u64> + '_ {
        self.charges.iter().map(|charge| charge.at)
    }
}

/// The version of the form in which receipts are written.
const VERSION: u8 = 1;

impl fmt::Display for Receipt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut bytes = Vec::new();
        write_head(&mut bytes, self.nonce, &self.prefix, &self.subject);
        self.charges.iter().for_each(|charge| charge.write(&mut bytes));
        f.write_str(&URL_SAFE_NO_PAD.encode(bytes))
    }
}

pub(crate) fn write_head(bytes: &mut Vec<u8>, nonce: u64, prefix: &str, subject: &Subject) {
    bytes.push(VERSION);
    bytes.extend_from_slice(&nonce.to_be_bytes());
    write_text(bytes, prefix.as_bytes());
    write_text(bytes, subject.as_bytes());
}

impl Charge {
    pub(crate) fn write(&self, bytes: &mut Vec<u8>) {
        write_text(bytes, self.algorithm.name().as_bytes());
        write_text(bytes, self.suffix.text().as_bytes());
        for number in [self.window, self.at, self.before_parts] {
            bytes.extend_from_slice(&number.to_be_bytes());
        }
        for number in [self.units, self.rate, self.before] {
            bytes.extend_from_slice(&number.to_be_bytes());
        }
        write_text(bytes, &self.id);
    }
}

impl FromStr for Receipt {
    type Err = Error;

    /// # Errors
    /// `invalid_receipt` if the text is not one that a receipt was written as.
    fn from_str(text: &str) -> Result<Receipt> {
        let bytes = URL_SAFE_NO_PAD.decode(text).ok();
        bytes.as_deref().and_then(|bytes| parse(&mut Reader(bytes))).ok_or_else(|| {
            Error::new(ErrorKind::InvalidReceipt, "this is not a receipt of Tidegate's; pass one as it was written")
        })
    }
}

fn parse(reader: &mut Reader<'_>) -> Option<Receipt> {
    if reader.take(1)? != [VERSION] {
        return None;
    }
    let nonce = reader.number()?;
    let prefix = String::from_utf8(reader.text()?.to_vec()).ok()?;
    crate::key::check_prefix(&prefix).ok()?;
    let subject = Subject::stored(reader.text()?)?;
    let mut charges = Vec::new();
    while !reader.0.is_empty() {
        charges.push(parse_charge(reader)?);
    }
    Some(Receipt { nonce, prefix, subject, charges })
}

fn parse_charge(reader: &mut Reader<'_>) -> Option<Charge> {
    let algorithm = Algorithm::parse(std::str::from_utf8(reader.text()?).ok()?).ok()?;
    let suffix = Suffix::stored(std::str::from_utf8(reader.text()?).ok()?);
    let (window, at, before_parts) = (reader.number()?, reader.number()?, reader.number()?);
    let (units, rate, before) = (reader.units()?, reader.units()?, reader.units()?);
    let id = RequestId::from(reader.text()?);
    let sane = window > 0 && window < 1 << 45 && at < 1 << 52 && before_parts < window && is_suffix(suffix.text());
    sane.then_some(Charge { algorithm, suffix, window, at, units, rate, before, before_parts, id })
}

/// A suffix that this release writes: nothing that could end a key early, or not be a key of ours.
fn is_suffix(text: &str) -> bool {
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || b"_.@+-%:".contains(&byte);
    text.starts_with(':') && text.bytes().all(legal)
}

fn write_text(bytes: &mut Vec<u8>, text: &[u8]) {
    let length = u16::try_from(text.len()).unwrap_or(u16::MAX);
    bytes.extend_from_slice(&length.to_be_bytes());
    bytes.extend_from_slice(&text[..usize::from(length)]);
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (head, tail) = self.0.split_at_checked(count)?;
        self.0 = tail;
        Some(head)
    }

    fn text(&mut self) -> Option<&'a [u8]> {
        let length = u16::from_be_bytes(self.take(2)?.try_into().ok()?);
        self.take(length.into())
    }

    fn number(&mut self) -> Option<u64> {
        Some(u64::from_be_bytes(self.take(8)?.try_into().ok()?))
    }

    fn units(&mut self) -> Option<u32> {
        let units = u32::from_be_bytes(self.take(4)?.try_into().ok()?);
        (u64::from(units) <= MAX_UNITS).then_some(units)
    }
}
