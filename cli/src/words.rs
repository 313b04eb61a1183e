//! Numbers, times and foreign bytes as a reader wants them.

use std::time::Duration;

use indicatif::HumanCount;
use jiff::SignedDuration;

/// `10,000`
pub(crate) fn count(number: impl Into<u64>) -> String {
    HumanCount(number.into()).to_string()
}

/// `5.0 %`, rounded to the nearest.
pub(crate) fn share(part: u64, whole: u64) -> String {
    let permille = (part * 1000 + whole / 2) / whole.max(1);
    format!("{}.{} %", permille / 10, permille % 10)
}

/// Whole milliseconds, rounded up: whoever waits for so long is admitted.
pub(crate) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

/// `12s 345ms`, or `2m 13s` where milliseconds would only be noise; rounded up.
pub(crate) fn time(time: Duration) -> String {
    let millis = millis(time);
    let shown = if millis < 60_000 { millis } else { millis.next_multiple_of(1_000) };
    format!("{:#}", SignedDuration::from_millis(i64::try_from(shown).unwrap_or(i64::MAX)))
}

/// Bytes of a log or a command line, so that no terminal takes them for commands, cut to so many characters.
pub(crate) fn shown(bytes: &[u8], most: usize) -> String {
    let text = String::from_utf8_lossy(bytes);
    let safe = |character: char| match character {
        '"' | '\'' | '\\' => character.to_string(),
        _ => character.escape_debug().to_string(),
    };
    let shown: String = text.chars().map(safe).collect();
    match shown.char_indices().nth(most) {
        None => shown,
        Some(_) => shown.chars().take(most - 1).chain(['…']).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_rounded_as_their_use_asks() {
        assert_eq!(count(10_000_u32), "10,000");
        assert_eq!((share(1, 3), share(0, 0), share(10, 10)), ("33.3 %".into(), "0.0 %".into(), "100.0 %".into()));
        assert_eq!(time(Duration::from_micros(12_344_001)), "12s 345ms");
        assert_eq!(time(Duration::from_micros(72_344_001)), "1m 13s");
        assert_eq!(time(Duration::ZERO), "0s");
    }

    #[test]
    fn nothing_foreign_reaches_the_terminal_raw() {
        assert_eq!(shown(b"\x1b[2Jx\xff\"", 20), "\\u{1b}[2Jx\u{fffd}\"");
        assert_eq!(shown("2001:db8::1".as_bytes(), 20), "2001:db8::1");
        assert_eq!(shown("\u{202e}".as_bytes(), 20), "\\u{202e}");
        assert_eq!(shown(b"abcdef", 4), "abc…");
    }
}
