//! The configuration document: the store and the rules, from TOML, JSON or YAML text. `docs/document.md` has the fields.
//!
//! ```text
//! text --(the format's parser)--> Tree --(shape: names and types)--> Shape --(Rule::new: meaning)--> Document
//! ```

pub(crate) mod http;
mod secret;
mod shape;
mod store;
mod tree;

use std::path::Path;
use std::sync::Arc;

use serde::Deserialize as _;

use crate::error::{Error, ErrorKind, Result};
use crate::http::Site;
use crate::rule::Rule;
pub(crate) use secret::Secret;
use shape::Shape;
pub(crate) use store::{
    DEFAULT_DEADLINE, DEFAULT_DENY_CACHE_MAX, DEFAULT_PREFIX, MAX_DENY_CACHE_MAX, MAX_MAX_KEYS, Store, Tls,
};
use tree::Tree;

/// The text formats that a [`Document`] is read from.
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Format {
    /// TOML, the format of the documentation's examples.
    Toml,
    /// JSON, as programs write it.
    Json,
    /// YAML.
    Yaml,
}

impl Format {
    fn of(path: &Path) -> Result<Format> {
        match path.extension().and_then(|ending| ending.to_str()) {
            Some("toml") => Ok(Format::Toml),
            Some("json") => Ok(Format::Json),
            Some("yaml" | "yml") => Ok(Format::Yaml),
            _ => Err(invalid("the format is told by the file's ending; name the file .toml, .json, .yaml or .yml")),
        }
    }
}

/// Where state lives and which rules there are, read from text and judged.
///
/// ```
/// # fn main() -> Result<(), tidegate::Error> {
/// let document = tidegate::Document::from_toml(r#"
///     version = 1
///     [rules]
///     login = "5/m"
///     api = ["100/m", "1000/h"]
/// "#)?;
/// # let _ = document;
/// # Ok(())
/// # }
/// ```
///
/// No password ever shows in its `Debug` output, nor in an error.
#[derive(Debug, Clone)]
pub struct Document {
    store: Store,
    rules: Vec<Rule>,
    site: Arc<Site>,
}

impl Document {
    /// Reads a document of the given format.
    ///
    /// # Errors
    /// `invalid_document` if the text cannot be read or has a field that is not known, `invalid_rule` if a rule cannot
    /// be meant. Either says where, and what to write instead.
    pub fn parse(text: &str, format: Format) -> Result<Document> {
        let tree = Tree::parse(text, format)?;
        let shape = Shape::deserialize(tree).map_err(|problem| invalid(problem.to_string()))?;
        let (store, rules, site) = shape.judged()?;
        Ok(Document { store, rules, site: Arc::new(site) })
    }

    /// Reads TOML.
    ///
    /// # Errors
    /// As [`Document::parse`].
    pub fn from_toml(text: &str) -> Result<Document> {
        Document::parse(text, Format::Toml)
    }

    /// Reads JSON.
    ///
    /// # Errors
    /// As [`Document::parse`].
    pub fn from_json(text: &str) -> Result<Document> {
        Document::parse(text, Format::Json)
    }

    /// Reads YAML.
    ///
    /// # Errors
    /// As [`Document::parse`].
    pub fn from_yaml(text: &str) -> Result<Document> {
        Document::parse(text, Format::Yaml)
    }

    /// Reads a file whose name ends in `.toml`, `.json`, `.yaml` or `.yml`.
    ///
    /// # Errors
    /// As [`Document::parse`], with the path before the message; and `invalid_document` if there is no such file.
    pub fn read(path: impl AsRef<Path>) -> Result<Document> {
        let path = path.as_ref();
        // The format first: a file of another kind need not be text at all.
        let text = Format::of(path)
            .and_then(|_| std::fs::read_to_string(path).map_err(|error| invalid(format!("cannot be read: {error}"))));
        Document::of_file(path, &text.map_err(|error| error.within(path.display()))?)
    }

    /// A file's text.
    pub(crate) fn of_file(path: &Path, text: &str) -> Result<Document> {
        let parsed = Format::of(path).and_then(|format| Document::parse(text, format));
        parsed.map_err(|error| error.within(path.display()))
    }

    /// The JSON Schema of documents, for editors and for tests that compare hand-written types with it.
    #[must_use]
    pub fn schema() -> serde_json::Value {
        schemars::schema_for!(Shape).to_value()
    }

    /// The store's URL; none means memory. What the environment says (`TIDEGATE_URL`) wins, unless it is empty.
    pub(crate) fn url(&self, environment: Option<String>) -> Option<String> {
        environment.filter(|url| !url.is_empty()).or_else(|| self.store.url())
    }

    pub(crate) fn store(&self) -> &Store {
        &self.store
    }

    /// Whether both write the same `[store]`, secrets included. What `TIDEGATE_URL` and the files say that are named
    /// there is not looked at: a `key_secret_file` is read when a limiter is built, and no later.
    pub(crate) fn same_store(&self, other: &Document) -> bool {
        self.store == other.store
    }

    /// The rules in the order in which they are written.
    pub(crate) fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// Which rules requests have.
    pub(crate) fn site(&self) -> &Arc<Site> {
        &self.site
    }
}

fn invalid(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidDocument, message)
}

#[cfg(test)]
mod tests;
