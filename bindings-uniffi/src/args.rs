//! What calls are given, into core's types. Core judges it.

use std::time::Duration;

use serde_json::json;
use tidegate::http::Policy;
use tidegate::{Builder, Document, Format};

use crate::error::{TidegateError, invalid};

/// Where rules stand.
#[derive(Debug, Clone, uniffi::Enum)]
pub enum Source {
    /// The text of a document.
    Toml {
        /// What it says.
        text: String,
    },
    /// The text of a document.
    Json {
        /// What it says.
        text: String,
    },
    /// The text of a document.
    Yaml {
        /// What it says.
        text: String,
    },
    /// A document in a file, whose name ends in `.toml`, `.json`, `.yaml` or `.yml`.
    File {
        /// Where it is.
        path: String,
    },
    /// Nothing but rules, and where their state is.
    Rules {
        /// The rules.
        rules: Vec<NamedRule>,
        /// Such as `redis://127.0.0.1:6379`; in memory without one.
        url: Option<String>,
    },
}

/// A rule by its name.
#[derive(Debug, Clone, PartialEq, Eq, uniffi::Record)]
pub struct NamedRule {
    /// What calls name it.
    pub name: String,
    /// Such as `100/m; 1000/h`.
    pub limits: String,
}

impl Source {
    pub(crate) fn builder(&self) -> tidegate::Result<Builder> {
        Ok(tidegate::Limiter::builder().document(&self.document()?))
    }

    pub(crate) fn document(&self) -> tidegate::Result<Document> {
        match self {
            Source::Toml { text } => Document::parse(text, Format::Toml),
            Source::Json { text } => Document::parse(text, Format::Json),
            Source::Yaml { text } => Document::parse(text, Format::Yaml),
            Source::File { path } => Document::read(path),
            // As a document, so that TIDEGATE_URL is heard here as there.
            Source::Rules { rules, url } => {
                // Text, and no map: core refuses a name that stands there twice.
                let rule = |rule: &NamedRule| format!("{}: {}", json!(rule.name), json!(rule.limits));
                let rules = rules.iter().map(rule).collect::<Vec<_>>().join(", ");
                let store =
                    url.as_ref().map_or_else(String::new, |url| format!(", \"store\": {}", json!({"url": url})));
                Document::parse(&format!("{{\"version\": 1, \"rules\": {{{rules}}}{store}}}"), Format::Json)
            }
        }
    }

    pub(crate) fn policy(&self) -> tidegate::Result<Policy> {
        Policy::new(&self.document()?)
    }
}

/// Who is limited: any 1 to 65,536 bytes.
#[derive(Debug, Clone, PartialEq, Eq, uniffi::Enum)]
pub enum Key {
    /// A user, an address, an API key.
    Whole {
        /// Its bytes; of a text its UTF-8.
        bytes: Vec<u8>,
    },
    /// Several, such as a tenant and a user, that stay apart.
    Parts {
        /// The bytes of each.
        parts: Vec<Vec<u8>>,
    },
}

impl Key {
    pub(crate) fn key(self) -> tidegate::Key {
        match self {
            Key::Whole { bytes } => tidegate::Key::from(&bytes),
            Key::Parts { parts } => tidegate::Key::parts(parts),
        }
    }
}

/// What a call may be told beside its rules and key.
#[derive(Debug, Clone, uniffi::Record)]
pub struct Options {
    /// The units that the request takes, from 1.
    #[uniffi(default = 1)]
    pub cost: i64,
    /// Limits instead of the rule's own, such as a customer's.
    #[uniffi(default = None)]
    pub limits: Option<String>,
    /// The request's id, 1 to 200 bytes, for a `sliding_window_log`.
    #[uniffi(default = None)]
    pub request_id: Option<Vec<u8>>,
    /// How long the store may take, in milliseconds; the limiter's own unless said.
    #[uniffi(default = None)]
    pub deadline_ms: Option<i64>,
}

/// Milliseconds; core judges their range.
pub(crate) fn duration(milliseconds: i64) -> Result<Duration, TidegateError> {
    let time = u64::try_from(milliseconds).map(Duration::from_millis);
    time.map_err(|_| invalid(format_args!("{milliseconds} ms is no time; write milliseconds, such as 100")))
}

/// Whole milliseconds, rounded up.
pub(crate) fn milliseconds(time: Duration) -> i64 {
    i64::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(i64::MAX)
}

/// The JVM has no others: each language is given signed numbers.
pub(crate) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// A whole number from 0; core judges whether it may be 0.
pub(crate) fn whole(number: i64, what: &str) -> Result<u64, TidegateError> {
    let out = || invalid(format_args!("the {what} {number} is out of range; write a whole number from 1"));
    u64::try_from(number).map_err(|_| out())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(rules: &[(&str, &str)], url: Option<&str>) -> tidegate::Result<tidegate::Limiter> {
        let rules = rules.iter().map(|(name, limits)| NamedRule { name: (*name).into(), limits: (*limits).into() });
        Source::Rules { rules: rules.collect(), url: url.map(str::to_owned) }.builder()?.build()
    }

    #[test]
    fn rules_alone_are_judged_as_a_document() {
        let limiter = rules(&[("b", "5/m"), ("a", "1/s; 9/h")], None).expect("they can be meant");
        assert_eq!(limiter.rules().collect::<Vec<_>>(), ["a", "b"]);
        let code = |rules: tidegate::Result<tidegate::Limiter>| rules.map_err(|error| error.code()).map(drop);
        assert_eq!(code(rules(&[("a", "5/m"), ("a", "6/m")], None)), Err("invalid_document"), "a name twice");
        assert_eq!(code(rules(&[("a\"", "soon")], None)), Err("invalid_rule"));
        assert_eq!(code(rules(&[("a", "5/m")], Some("http://127.0.0.1"))), Err("invalid_document"));
    }
}
