//! Rates and durations as people type them. `docs/rules.md` has the tables; what could mean two things is refused.

use std::iter::Peekable;
use std::str::SplitWhitespace;
use std::time::Duration;

use crate::error::{Error, ErrorKind, Result};
use crate::rule::{Algorithm, Limit};

const SECOND: u64 = 1_000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

/// The limits of a text such as `"100/m; 1000/h"`, one or more.
pub(crate) fn parse(text: &str) -> Result<Vec<Limit>> {
    let lines = text.lines().filter(|line| !line.trim().is_empty());
    let rates: Vec<Limit> = lines.flat_map(|line| line.split([';', ','])).map(rate).collect::<Result<_>>()?;
    if rates.is_empty() {
        return Err(invalid("no rate is written; write one such as 100/m"));
    }
    Ok(rates)
}

/// The duration of a text such as `"10s"` or `"5 minutes"`, as documents and rules have it. For bindings.
///
/// # Errors
/// `invalid_rule` for a text that is no duration, with what to write instead.
pub fn parse_duration(text: &str) -> Result<Duration> {
    let mut words = text.split_whitespace().peekable();
    let read = span(&mut words, None).and_then(|duration| match words.next() {
        None => Ok(duration),
        Some(word) => Err(invalid(format!("{} is too much; write one number and one unit", shown(word)))),
    });
    read.map_err(|error| error.within(format!("duration {}", shown(text))))
}

type Words<'a> = Peekable<SplitWhitespace<'a>>;

fn rate(piece: &str) -> Result<Limit> {
    let piece = piece.trim();
    limit(piece).map_err(|error| error.within(format!("rate {}", shown(piece))))
}

fn limit(piece: &str) -> Result<Limit> {
    if piece.is_empty() {
        return Err(invalid("a separator has no rate before or after it; write one there, or leave the separator out"));
    }
    let (number, rest) = piece.split_at(piece.find(|c: char| c == '/' || c.is_whitespace()).unwrap_or(piece.len()));
    if number.is_empty() {
        return Err(invalid("no number stands before the /; write one, as in 100/m"));
    }
    let quota = whole(number)?;
    let (mut words, window) = match rest.trim_start().strip_prefix('/') {
        // As django-ratelimit has it, `100/300` is in seconds.
        Some(rest) => windowed(rest.split_whitespace(), Some(SECOND))?,
        None => {
            let mut words = rest.split_whitespace();
            if !words.next().is_some_and(|word| word.eq_ignore_ascii_case("per")) {
                return Err(invalid(format!(
                    "no window follows the number; write {number}/m, {number}/5m or {number} per 5 minutes \
                     (and 10_000, not 10,000)"
                )));
            }
            windowed(words, None)?
        }
    };
    Ok(Options::read(&mut words)?.limit(quota, window))
}

fn windowed(words: SplitWhitespace<'_>, bare: Option<u64>) -> Result<(Words<'_>, Duration)> {
    let mut words = words.peekable();
    let window = span(&mut words, bare)?;
    Ok((words, window))
}

/// `5m`, `5 minutes`, `minute`; and a number alone in units of `bare`, if there is such.
fn span(words: &mut Words<'_>, bare: Option<u64>) -> Result<Duration> {
    let Some(word) = words.next() else {
        return Err(invalid("a time is missing at the end; write a unit such as m, or a number with one such as 5m"));
    };
    let (number, attached) = word.split_at(word.find(char::is_alphabetic).unwrap_or(word.len()));
    let count = if number.is_empty() { 1 } else { whole(number)? };
    let name = match attached {
        "" => words.next_if(|next| !Options::begin_with(next)),
        _ => Some(attached),
    };
    let unit = match (name, bare) {
        (Some(name), _) => unit(name)?,
        (None, Some(bare)) => bare,
        (None, None) => {
            return Err(invalid(format!("{number} has no unit; write {number}s for seconds or {number}ms")));
        }
    };
    let millis = count.checked_mul(unit).ok_or_else(|| invalid("the time is too long; write a shorter one"))?;
    Ok(Duration::from_millis(millis))
}

fn unit(name: &str) -> Result<u64> {
    // Short names keep their case: a capital M alone is a minute to some and a month to others.
    let spelled = if name.len() < 3 { name.to_owned() } else { name.to_ascii_lowercase() };
    Ok(match spelled.as_str() {
        "ms" | "millisecond" | "milliseconds" => 1,
        "s" | "sec" | "secs" | "second" | "seconds" => SECOND,
        "m" | "min" | "mins" | "minute" | "minutes" => MINUTE,
        "h" | "hr" | "hrs" | "hour" | "hours" => HOUR,
        "d" | "day" | "days" => DAY,
        "w" | "week" | "weeks" => 7 * DAY,
        "month" | "months" => 30 * DAY,
        "year" | "years" => 365 * DAY,
        _ => return Err(unknown_unit(name)),
    })
}

fn unknown_unit(name: &str) -> Error {
    let instead = match name {
        "M" => "m for minutes or month for 30 days",
        "mo" | "Mo" | "MO" | "mon" => "month for 30 days",
        "y" | "Y" | "yr" => "year for 365 days",
        "S" | "H" | "D" | "W" | "MS" | "Ms" | "HR" | "Hr" => &name.to_ascii_lowercase(),
        _ => "a number and one of ms, s, m, h, d, w, month (30 days), year (365 days)",
    };
    invalid(format!("{} is no unit; write {instead}", shown(name)))
}

/// What may follow a rate, in any order.
#[derive(Default)]
struct Options {
    burst: Option<u64>,
    algorithm: Option<Algorithm>,
    precision: Option<Duration>,
    name: Option<String>,
    enforce: Option<bool>,
}

impl Options {
    fn begin_with(word: &str) -> bool {
        let word = word.to_ascii_lowercase();
        matches!(word.as_str(), "burst" | "precision" | "named" | "shadow") || Algorithm::parse(&word).is_ok()
    }

    fn read(words: &mut Words<'_>) -> Result<Options> {
        let mut options = Options::default();
        while let Some(word) = words.next() {
            let lower = word.to_ascii_lowercase();
            match lower.as_str() {
                "burst" => once(word, &mut options.burst, whole(value(words, "burst 20")?)?)?,
                "precision" => once(word, &mut options.precision, span(words, None)?)?,
                "named" => once(word, &mut options.name, value(words, "named hourly")?.to_owned())?,
                "shadow" => once(word, &mut options.enforce, false)?,
                name => once(word, &mut options.algorithm, algorithm(name, word)?)?,
            }
        }
        Ok(options)
    }

    fn limit(self, quota: u64, window: Duration) -> Limit {
        Limit {
            algorithm: self.algorithm.unwrap_or(implied(self.burst)),
            burst: self.burst,
            precision: self.precision,
            name: self.name,
            enforce: self.enforce.unwrap_or(true),
            ..Limit::new(quota, window)
        }
    }
}

/// The algorithm where none is written: only a token bucket has a burst.
pub(crate) fn implied(burst: Option<u64>) -> Algorithm {
    if burst.is_some() { Algorithm::TokenBucket } else { Algorithm::default() }
}

fn algorithm(name: &str, written: &str) -> Result<Algorithm> {
    Algorithm::parse(name).map_err(|_| {
        let names = Algorithm::names();
        invalid(format!(
            "{} is not known here; write burst 20, precision 1s, named hourly, shadow, or an algorithm: {names}, gcra",
            shown(written)
        ))
    })
}

fn value<'a>(words: &mut Words<'a>, example: &str) -> Result<&'a str> {
    words.next().ok_or_else(|| invalid(format!("the last word lacks its value; write it as in {example}")))
}

fn once<T>(word: &str, slot: &mut Option<T>, value: T) -> Result<()> {
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => Err(invalid(format!("{} is the second of its kind; write one", shown(word)))),
    }
}

/// A whole number in the digits 0-9, grouped by `_` or not.
fn whole(text: &str) -> Result<u64> {
    let grouped = |group: &str| !group.is_empty() && group.bytes().all(|byte| byte.is_ascii_digit());
    if !text.split('_').all(grouped) {
        return Err(invalid(format!(
            "{} is not a whole number; write it in the digits 0-9, as in 100 or 10_000 (and 3/2s for 1.5/s)",
            shown(text)
        )));
    }
    text.replace('_', "").parse().map_err(|_| invalid(format!("{} is too large; write a smaller number", shown(text))))
}

/// The text in quotes, cut short and with what does not print made visible.
fn shown(text: &str) -> String {
    const LONGEST: usize = 60;
    match text.char_indices().nth(LONGEST) {
        None => format!("{text:?}"),
        Some((end, _)) => format!("{:?}...", &text[..end]),
    }
}

fn invalid(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidRule, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rule::Rule;

    fn every(quota: u64, millis: u64) -> Limit {
        Limit::new(quota, Duration::from_millis(millis))
    }

    #[test]
    fn reads_every_dialect() {
        for (text, quota, millis) in [
            // django-ratelimit
            ("100/m", 100, MINUTE),
            ("10/5m", 10, 5 * MINUTE),
            ("100/300", 100, 300 * SECOND),
            ("0/s", 0, SECOND),
            // Django REST framework
            ("100/min", 100, MINUTE),
            ("100/minute", 100, MINUTE),
            ("1000/day", 1000, DAY),
            // limits, flask-limiter
            ("100 per 5 minutes", 100, 5 * MINUTE),
            ("100 per minute", 100, MINUTE),
            ("100 per 1 hour", 100, HOUR),
            ("10/30 seconds", 10, 30 * SECOND),
            // and what else people type
            ("  100  /  5  m ", 100, 5 * MINUTE),
            ("100\tPER\tMinute", 100, MINUTE),
            ("10_000/1_000ms", 10_000, 1_000),
            ("007/h", 7, HOUR),
            ("18446744073709551615/s", u64::MAX, SECOND),
        ] {
            assert_eq!(parse(text), Ok(vec![every(quota, millis)]), "{text}");
        }
    }

    #[test]
    fn reads_every_unit() {
        for (names, millis) in [
            ("ms millisecond milliseconds", 1),
            ("s sec secs second seconds SECONDS", SECOND),
            ("m min mins minute minutes Min", MINUTE),
            ("h hr hrs hour hours", HOUR),
            ("d day days Day", DAY),
            ("w week weeks", 7 * DAY),
            ("month months", 30 * DAY),
            ("year years YEAR", 365 * DAY),
        ] {
            for name in names.split(' ') {
                assert_eq!(parse(&format!("9/{name}")), Ok(vec![every(9, millis)]), "{name}");
                for text in [format!("3{name}"), format!(" 3 {name} ")] {
                    assert_eq!(parse_duration(&text), Ok(Duration::from_millis(3 * millis)), "{text}");
                }
            }
        }
    }

    #[test]
    fn reads_what_follows_a_rate() {
        let (second, minute) = (every(5, SECOND), every(5, MINUTE));
        let bucket = second.clone().algorithm(Algorithm::TokenBucket);
        let precise = minute.precision(Duration::from_secs(1));
        for (text, limit) in [
            ("5/s burst 20", bucket.clone().burst(20)),
            ("5/1 burst 20", bucket.clone().burst(20)),
            ("5/s gcra", bucket.clone()),
            ("5 per second Burst 20 GCRA", bucket.burst(20)),
            ("5/s burst 20 fixed_window", second.clone().algorithm(Algorithm::FixedWindow).burst(20)),
            ("5/m precision 1s", precise.clone()),
            ("5/m precision 1 second shadow", precise.clone().enforce(false)),
            ("5/m shadow named a/b precision 1s", precise.name("a/b").enforce(false)),
        ] {
            assert_eq!(parse(text), Ok(vec![limit]), "{text}");
        }
        for &algorithm in Algorithm::ALL {
            assert_eq!(parse(&format!("5/s {algorithm}")), Ok(vec![second.clone().algorithm(algorithm)]));
        }
    }

    #[test]
    fn reads_several() {
        let both = Ok(vec![every(100, MINUTE), every(1000, HOUR)]);
        for text in ["100/m;1000/h", "100/m, 1000 per hour", "\n 100/m\r\n\n 1000/h \n"] {
            assert_eq!(parse(text), both, "{text}");
        }
    }

    #[test]
    fn refuses_what_cannot_be_meant() {
        for (text, fragment) in [
            ("", "write one such as 100/m"),
            (" \n ", "write one such as 100/m"),
            ("10/m;", "leave the separator out"),
            ("10/m;,5/s", "leave the separator out"),
            (",10/m", "leave the separator out"),
            ("1,000/h", "10_000, not 10,000"),
            ("100", "write 100/m, 100/5m or 100 per 5 minutes"),
            ("100 minute", "write 100/m"),
            ("100m", "\"100m\" is not a whole number"),
            ("/m", "no number stands before the /"),
            ("100/", "a time is missing"),
            ("100 per", "a time is missing"),
            ("100 / / m", "\"/\" is not a whole number"),
            ("100/m/s", "\"m/s\" is no unit"),
            ("100 per 300", "300 has no unit; write 300s"),
            ("1.5/s", "3/2s for 1.5/s"),
            ("1/1.5s", "\"1.5\" is not a whole number"),
            ("-1/s", "\"-1\" is not a whole number"),
            ("+1/s", "\"+1\" is not a whole number"),
            ("NaN/s", "\"NaN\" is not a whole number"),
            ("1e3/s", "\"1e3\" is not a whole number"),
            ("1__0/s", "\"1__0\" is not a whole number"),
            ("_1/s", "\"_1\" is not a whole number"),
            ("１００/m", "write it in the digits 0-9"),
            ("٣/m", "write it in the digits 0-9"),
            ("10/５m", "write it in the digits 0-9"),
            ("1\u{200b}0/m", "\"1\\u{200b}0\" is not a whole number"),
            ("18446744073709551616/s", "is too large"),
            ("1/18446744073709551615w", "the time is too long"),
            ("5/fortnight", "\"fortnight\" is no unit; write a number and one of ms, s, m"),
            ("5/2 fortnights", "\"fortnights\" is no unit"),
            ("5/1h30m", "\"h30m\" is no unit"),
            ("5/µs", "\"µs\" is no unit"),
            ("5/mo", "write month for 30 days"),
            ("5/y", "write year for 365 days"),
            ("10/M", "write m for minutes or month for 30 days"),
            ("10/5 M", "write m for minutes or month for 30 days"),
            ("10/H", "write h"),
            ("10/MS", "write ms"),
            ("10/m often", "\"often\" is not known here; write burst 20"),
            ("10/m burst", "write it as in burst 20"),
            ("10/m burst -1", "\"-1\" is not a whole number"),
            ("10/m named", "write it as in named hourly"),
            ("10/m precision", "a time is missing"),
            ("10/m precision 10", "10 has no unit"),
            ("10/m burst 1 burst 2", "\"burst\" is the second of its kind"),
            ("10/m gcra fixed_window", "\"fixed_window\" is the second of its kind"),
        ] {
            let error = parse(text).expect_err(text);
            assert_eq!(error.kind(), ErrorKind::InvalidRule);
            assert!(error.message().contains(fragment), "{text}: {error}");
        }
    }

    #[test]
    fn refuses_durations_without_one_number_and_one_unit() {
        for (text, fragment) in [
            ("", "a time is missing"),
            ("10", "10 has no unit; write 10s for seconds or 10ms"),
            ("10 m s", "\"s\" is too much"),
            ("10s burst 2", "\"burst\" is too much"),
            ("-5s", "\"-5\" is not a whole number"),
            ("5M", "\"M\" is no unit"),
            ("99999999999999999999s", "is too large"),
            ("9999999999999999999s", "the time is too long"),
        ] {
            let error = parse_duration(text).expect_err(text);
            assert!(error.message().starts_with(&format!("duration {text:?}: ")), "{error}");
            assert!(error.message().contains(fragment), "{text}: {error}");
        }
    }

    #[test]
    fn leaves_ranges_to_the_rule() {
        for (text, fragment) in [
            ("100/0s", "window 0ns is out of range"),
            ("1/367d", "is out of range"),
            ("10_000_001/s", "limit 10000001 is too large"),
            ("5/s burst 20 fixed_window", "burst is of token_bucket alone"),
            ("5/s; 6/s", "give one a name"),
        ] {
            let error = Rule::parse("login", text).expect_err(text);
            assert!(error.message().contains(fragment), "{text}: {error}");
        }
    }

    #[test]
    fn cuts_long_texts_short_in_errors() {
        let error = parse(&"é".repeat(10_000)).expect_err("no rate");
        assert!(error.message().len() < 500, "{error}");
    }
}
