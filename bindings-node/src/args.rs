//! What calls are given, from JavaScript's types into core's. Core judges it.

use std::time::Duration;

use tidegate::Key;

use crate::error::{Result, invalid};

/// Milliseconds, whole or not; core judges their range.
#[allow(clippy::float_arithmetic, reason = "JavaScript has no other numbers, and no decision comes of this one")]
pub(crate) fn duration(milliseconds: f64) -> Result<Duration> {
    Duration::try_from_secs_f64(milliseconds / 1_000.0).map_err(|_| {
        invalid(format!("{milliseconds} is no time; write milliseconds, such as 100, or text such as \"10s\""))
    })
}

#[allow(clippy::float_arithmetic, reason = "JavaScript has no other numbers, and no decision comes of this one")]
pub(crate) fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1_000.0
}

/// A whole number, as JavaScript has it.
#[allow(clippy::cast_precision_loss, reason = "beyond 2^53 a time in milliseconds or a count is never whole")]
pub(crate) fn number(whole: u64) -> f64 {
    whole as f64
}

/// The whole number that was given, whatever core makes of it.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it was found to be whole, and from 0 on")]
pub(crate) fn whole(number: f64, what: &str) -> Result<u64> {
    if number.fract() != 0.0 || !(0.0..9_007_199_254_740_992.0).contains(&number) {
        return Err(invalid(format!("the {what} {number} is out of range; write a whole number from 1")));
    }
    Ok(number as u64)
}

/// A key from its bytes: of one part, or of so many, each behind its length in four bytes.
pub(crate) fn key(bytes: &[u8], parts: usize) -> Result<Key> {
    if parts == 0 {
        return Ok(Key::from(bytes));
    }
    let mut rest = bytes;
    let split = (0..parts).map(|_| {
        let (length, tail) = rest.split_first_chunk::<4>()?;
        let (part, tail) = tail.split_at_checked(usize::try_from(u32::from_le_bytes(*length)).ok()?)?;
        rest = tail;
        Some(part)
    });
    let split: Option<Vec<&[u8]>> = split.collect();
    split.map(Key::parts).ok_or_else(|| invalid("the parts of the key do not fit their lengths"))
}

/// A number that is an index, or a length.
pub(crate) fn index(number: f64) -> Result<usize> {
    Ok(usize::try_from(whole(number, "number")?).unwrap_or(usize::MAX))
}

/// What JavaScript has written for one call, for many at once: how many they are, where their bytes begin, and a flag; then
/// so many numbers for each; then the bytes.
pub(crate) struct Numbers<'a, const COUNT: usize> {
    heads: std::slice::ChunksExact<'a, u8>,
    bytes: &'a [u8],
    pub(crate) flag: bool,
}

const FIRST: usize = 3;
const NUMBER: usize = 8;

impl<'a, const COUNT: usize> Numbers<'a, COUNT> {
    pub(crate) fn new(written: &'a [u8]) -> Numbers<'a, COUNT> {
        let [count, bytes_at, flag] = numbers(written);
        let length = index(count).unwrap_or_default() * COUNT * NUMBER;
        let heads = written.get(FIRST * NUMBER..).and_then(|rest| rest.get(..length)).unwrap_or_default();
        let bytes = index(bytes_at).ok().and_then(|at| written.get(at..)).unwrap_or_default();
        Numbers { heads: heads.chunks_exact(COUNT * NUMBER), bytes, flag: flag > 0.0 }
    }

    /// The numbers of the next.
    pub(crate) fn next(&mut self) -> Option<[f64; COUNT]> {
        self.heads.next().map(numbers)
    }

    /// So many of the bytes; none where the number is below 0.
    pub(crate) fn take(&mut self, length: f64) -> Result<Option<&'a [u8]>> {
        if length < 0.0 {
            return Ok(None);
        }
        let taken = self.bytes.split_at_checked(index(length)?);
        let (first, rest) = taken.ok_or_else(|| invalid("the bytes end too early"))?;
        self.bytes = rest;
        Ok(Some(first))
    }

    /// The bytes behind their length in four.
    pub(crate) fn text(&mut self) -> Result<&'a [u8]> {
        let taken = self
            .bytes
            .split_first_chunk::<4>()
            .and_then(|(length, rest)| rest.split_at_checked(usize::try_from(u32::from_le_bytes(*length)).ok()?));
        let (first, rest) = taken.ok_or_else(|| invalid("the bytes end too early"))?;
        self.bytes = rest;
        Ok(first)
    }
}

/// The first numbers of some bytes, 0 where they end.
fn numbers<const COUNT: usize>(bytes: &[u8]) -> [f64; COUNT] {
    let mut eights = bytes.as_chunks::<NUMBER>().0.iter();
    std::array::from_fn(|_| eights.next().map_or(0.0, |eight| f64::from_ne_bytes(*eight)))
}
