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
