//! Who is limited: where a key comes from, and how it stands in stored keys.
//!
//! Each part is tagged with its source (`ip,203.0.113.7`, `header,x-api-key,4711`), so that no user can be taken for an
//! address, whatever he calls himself.

use std::net::IpAddr;

use smallvec::SmallVec;

use super::client::Client;
use super::forwarded;
use super::invalid;
use super::networks::{Networks, networks};
use super::plain;
use crate::document::http::{Exempt as ExemptShape, Texts};
use crate::error::Result;
use crate::key::Key;

/// One thing that a request has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Source {
    Address,
    User,
    /// In lower case.
    Header(String),
    Cookie(String),
    /// Supplied by the application under a name.
    App(String),
    Constant(String),
}

impl Source {
    fn parse(text: &str, client: &Client) -> Result<Source> {
        let (kind, name) = text.split_once(':').map_or((text, None), |(kind, name)| (kind, Some(name)));
        match (kind, name) {
            ("ip", None) => Ok(Source::Address),
            ("user", None) => Ok(Source::User),
            ("header", Some(name)) if is_token(name) => header(name, client),
            ("cookie", Some(name)) if is_token(name) => Ok(Source::Cookie(name.to_owned())),
            ("app", Some(name)) if !name.is_empty() => Ok(Source::App(name.to_owned())),
            ("constant", Some(text)) if !text.is_empty() => Ok(Source::Constant(text.to_owned())),
            _ => Err(invalid(format!(
                "the key {text:?} is not known; write ip, user, header:NAME, cookie:NAME, app:NAME or constant:TEXT; a \
                 list for all of several together, \"user or ip\" for the first that is there"
            ))),
        }
    }

    /// But for mistakes: an address that nobody handed over.
    fn is_always_there(&self) -> bool {
        matches!(self, Source::Address | Source::Constant(_))
    }

    /// What stands before its value.
    fn tags(&self) -> (&'static str, Option<&str>) {
        match self {
            Source::Address => ("ip", None),
            Source::User => ("user", None),
            Source::Header(name) => ("header", Some(name)),
            Source::Cookie(name) => ("cookie", Some(name)),
            Source::App(name) => ("app", Some(name)),
            Source::Constant(_) => ("constant", None),
        }
    }
}

/// A header as a key, unless an address is meant: what clients write of that is theirs to choose.
fn header(name: &str, client: &Client) -> Result<Source> {
    let name = name.to_ascii_lowercase();
    if ["x-forwarded-for", "forwarded", "x-real-ip"].contains(&&*name) || client.header() == Some(&name) {
        return Err(invalid(format!(
            "header:{name} is the client's address, which anybody could write; write \"ip\", and in [http] \
             trusted_proxies and client_address"
        )));
    }
    match name.strip_prefix("http_") {
        Some(rest) => Err(invalid(format!("write the header's own name: header:{}", rest.replace('_', "-")))),
        None => Ok(Source::Header(name)),
    }
}

/// What a request has of a source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Value {
    Missing,
    /// There are several, and nobody can tell which of them the application takes.
    Ambiguous,
    Bytes(Vec<u8>),
}

/// Where a key comes from: parts, each the first of some sources that is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KeySource {
    parts: Vec<Vec<Source>>,
    /// As it is written.
    text: String,
}

/// A request's key, if it has one.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Found {
    Key(Key),
    Missing,
    /// Ambiguous: it must not be a way past the limit.
    Shared,
}

/// The longest value that is told from others: longer ones that begin alike share a bucket.
const MAX_VALUE: usize = 4 * 1024;
/// The most parts of a key: all of them together stay below what a key may have.
const MAX_PARTS: usize = 8;

impl KeySource {
    pub(crate) fn parse(texts: &Texts, client: &Client) -> Result<KeySource> {
        if texts.0.is_empty() {
            return Err(invalid("the key is an empty list; write who is limited, such as \"ip\""));
        }
        if texts.0.len() > MAX_PARTS {
            return Err(invalid(format!("the key has {} parts; write at most {MAX_PARTS}", texts.0.len())));
        }
        let part = |text: &String| {
            let sources = text.split(" or ").map(|source| Source::parse(source.trim(), client));
            let sources = sources.collect::<Result<Vec<_>>>()?;
            match sources.iter().position(Source::is_always_there) {
                Some(place) if place + 1 < sources.len() => Err(invalid(format!(
                    "what stands last in {text:?} is never looked at, since something before it is always there; write \
                     that last, as in \"user or ip\""
                ))),
                _ => Ok(sources),
            }
        };
        Ok(KeySource { parts: texts.0.iter().map(part).collect::<Result<_>>()?, text: texts.0.join(" and ") })
    }

    pub(crate) fn sources(&self) -> impl Iterator<Item = &Source> {
        self.parts.iter().flatten()
    }

    /// As it is written, for logs.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Whether requests without it are nothing unusual, so that somebody has to say what is to be done with them.
    pub(crate) fn needs_choice(&self) -> bool {
        !self.parts.iter().all(|part| part.iter().any(Source::is_always_there))
    }

    /// The key of a request whose values `value` tells.
    pub(crate) fn key(&self, mut value: impl FnMut(&Source) -> Value) -> Found {
        let mut parts: SmallVec<[(&Source, Vec<u8>); 1]> = SmallVec::new();
        for part in &self.parts {
            let mut found = None;
            for source in part {
                match value(source) {
                    Value::Missing => {}
                    Value::Ambiguous => return Found::Shared,
                    Value::Bytes(bytes) => {
                        found = Some((source, bytes));
                        break;
                    }
                }
            }
            match found {
                Some(found) => parts.push(found),
                None => return Found::Missing,
            }
        }
        Found::Key(tagged(&parts))
    }

    /// The bucket of all who have no key.
    pub(crate) fn shared() -> Key {
        // No tagged key has these parts.
        Key::parts(["without", "identity"])
    }
}

fn tagged(parts: &[(&Source, Vec<u8>)]) -> Key {
    let each = parts.iter().flat_map(|(source, bytes)| {
        let (kind, name) = source.tags();
        let value = &bytes[..bytes.len().min(MAX_VALUE)];
        [Some(kind.as_bytes()), name.map(str::as_bytes), Some(value)].into_iter().flatten()
    });
    Key::parts(each)
}

/// Who passes without being counted.
#[derive(Debug, Default)]
pub(crate) struct Exempt {
    networks: Networks,
    keys: Vec<(Source, Vec<u8>)>,
    /// Questions to the application.
    pub(crate) questions: Vec<String>,
}

impl Exempt {
    pub(crate) fn new(shape: &ExemptShape, client: &Client) -> Result<Exempt> {
        let networks = networks(&shape.networks.0).map_err(|error| error.within("exempt.networks"))?;
        let keys = shape.keys.0.iter().map(|text| exempt_key(text, client)).collect::<Result<_>>();
        let questions = shape.app.0.clone();
        if questions.iter().any(String::is_empty) {
            return Err(invalid(
                "exempt.app has an empty name; write what the application is asked, such as \"is_staff\"",
            ));
        }
        if let Some(question) = questions.iter().find(|question| question.starts_with("app:")) {
            let name = &question["app:".len()..];
            return Err(invalid(format!("exempt.app: {question:?} is asked without app: before it; write {name:?}")));
        }
        Ok(Exempt { networks, keys: keys.map_err(|error| error.within("exempt.keys"))?, questions })
    }

    pub(crate) fn sources(&self) -> impl Iterator<Item = &Source> {
        self.keys.iter().map(|(source, _)| source)
    }

    pub(crate) fn has_networks(&self) -> bool {
        !self.networks.is_empty()
    }

    pub(crate) fn holds(
        &self,
        address: Option<IpAddr>,
        mut value: impl FnMut(&Source) -> Value,
        said_yes: impl Fn(&str) -> bool,
    ) -> bool {
        address.is_some_and(|address| self.networks.contain(address))
            || self.keys.iter().any(|(source, wanted)| matches!(value(source), Value::Bytes(bytes) if bytes == *wanted))
            || self.questions.iter().any(|question| said_yes(question))
    }
}

/// A source and a value, such as `user:root` and `header:x-api-key:4711`.
fn exempt_key(text: &str, client: &Client) -> Result<(Source, Vec<u8>)> {
    let parts = match text.split_once(':') {
        Some((kind @ ("header" | "cookie" | "app"), rest)) => {
            rest.split_once(':').map(|(name, value)| (format!("{kind}:{name}"), value))
        }
        Some(("user", value)) => Some(("user".to_owned(), value)),
        _ => None,
    };
    match parts {
        Some((source, value)) if !value.is_empty() => {
            let source = Source::parse(&source, client)?;
            // In the spelling in which requests' values are compared.
            let value = match &source {
                Source::Header(name) => plain::header(name, value.as_bytes()),
                Source::Cookie(_) => plain::cookie(value.as_bytes()),
                _ => value.as_bytes().to_vec(),
            };
            Ok((source, value))
        }
        // The value may be a secret, so it is not quoted.
        _ => Err(invalid(
            "write a source and a value: user:NAME, header:NAME:VALUE, cookie:NAME:VALUE or app:NAME:VALUE; addresses \
             go to exempt.networks",
        )),
    }
}

/// Whether it can be the name of a header or cookie.
pub(crate) fn is_token(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(forwarded::is_token)
}
