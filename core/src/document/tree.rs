//! What a document's text says before its meaning is asked: values and tables, and a place for every error.
//!
//! The formats' own errors quote what they read, and that may be a password. So their parsers only build this tree, which
//! takes everything that is well-formed, and the errors of the reading that follows name places and kinds, never values.

use std::collections::HashSet;
use std::fmt;

use serde::de::value::StrDeserializer;
use serde::de::{
    self, DeserializeSeed, Deserializer, Expected, IntoDeserializer as _, MapAccess, SeqAccess, Unexpected, Visitor,
};
use serde::{Deserialize, forward_to_deserialize_any};

use super::{Format, invalid, shape};
use crate::error::Result;

pub(super) enum Tree {
    Nothing,
    Bool(bool),
    Whole(u64),
    /// A number that no field takes, by what it is.
    Unfit(&'static str),
    Text(String),
    List(Vec<Tree>),
    Table(Vec<(String, Tree)>),
}

impl Tree {
    pub(super) fn parse(text: &str, format: Format) -> Result<Tree> {
        // Some editors begin a file with a byte order mark, which not every parser takes.
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let parsed = match format {
            Format::Toml => toml::from_str(text).map_err(|error| located(&error, text)),
            Format::Json => serde_json::from_str(text).map_err(|error| error.to_string()),
            Format::Yaml if flow_depth(text) > MAX_FLOW_DEPTH => Err("the document is nested too deeply".to_owned()),
            Format::Yaml => yaml_serde::from_str(text).map_err(|error| without_values(&error.to_string())),
        };
        parsed.map_err(invalid)
    }
}

/// YAML's parser takes quadratic time over brackets in brackets; no document of ours has more than a few.
const MAX_FLOW_DEPTH: usize = 200;

/// How deep brackets stand in brackets, at the most.
fn flow_depth(text: &str) -> usize {
    let depths = text.bytes().scan(0_usize, |depth, byte| {
        match byte {
            b'{' | b'[' => *depth += 1,
            b'}' | b']' => *depth = depth.saturating_sub(1),
            _ => {}
        }
        Some(*depth)
    });
    depths.max().unwrap_or(0)
}

/// YAML's parser quotes the value that a tag does not fit, which may be a password; names are ours to quote.
fn without_values(message: &str) -> String {
    match (message.find("string \""), message.rfind("\", expected")) {
        (Some(from), Some(to)) if from < to => format!("{}a text{}", &message[..from], &message[to + 1..]),
        _ => message.to_owned(),
    }
}

/// A message with its line and column: what toml displays has the line itself.
fn located(error: &toml::de::Error, text: &str) -> String {
    let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
    let line = before.matches('\n').count() + 1;
    let column = before.chars().rev().take_while(|&c| c != '\n').count() + 1;
    format!("{} at line {line} column {column}", error.message())
}

impl<'de> Deserialize<'de> for Tree {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Tree, D::Error> {
        deserializer.deserialize_any(TreeVisitor)
    }
}

struct TreeVisitor;

impl<'de> Visitor<'de> for TreeVisitor {
    type Value = Tree;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("text, a number, true, false, a list or a table")
    }

    fn visit_unit<E>(self) -> Result<Tree, E> {
        Ok(Tree::Nothing)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Tree, E> {
        Ok(Tree::Bool(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Tree, E> {
        Ok(Tree::Whole(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Tree, E> {
        Ok(u64::try_from(value).map_or(Tree::Unfit("a negative number"), Tree::Whole))
    }

    fn visit_u128<E>(self, _: u128) -> Result<Tree, E> {
        Ok(Tree::Unfit("a number too large"))
    }

    fn visit_i128<E>(self, _: i128) -> Result<Tree, E> {
        Ok(Tree::Unfit("a negative number"))
    }

    fn visit_f64<E>(self, _: f64) -> Result<Tree, E> {
        Ok(Tree::Unfit("a number with a fraction or an exponent, or too large"))
    }

    fn visit_str<E>(self, text: &str) -> Result<Tree, E> {
        Ok(Tree::Text(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Tree, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = seq.next_element()? {
            list.push(item);
        }
        Ok(Tree::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Tree, A::Error> {
        let (mut table, mut names) = (Vec::new(), HashSet::new());
        while let Some((name, value)) = map.next_entry::<String, Tree>()? {
            if let (JSON_NUMBER, Tree::Text(digits)) = (name.as_str(), &value) {
                return Ok(digits.parse().map_or(Tree::Unfit("a number of another kind"), Tree::Whole));
            }
            if !names.insert(name.clone()) {
                return Err(de::Error::custom(format!("{name:?} is written twice; write it once")));
            }
            table.push((name, value));
        }
        Ok(Tree::Table(table))
    }
}

/// How serde_json hands numbers over if anything in the whole program turns its feature `arbitrary_precision` on.
const JSON_NUMBER: &str = "$serde_json::private::Number";

/// Why a tree is not what was wanted, and where.
#[derive(Debug)]
pub(super) struct Problem {
    place: String,
    message: String,
}

impl Problem {
    fn new(message: impl fmt::Display) -> Problem {
        Problem { place: String::new(), message: message.to_string() }
    }

    /// In the words of the documentation where serde has its own.
    fn unlike(found: &str, expected: &dyn Expected) -> Problem {
        let expected = expected.to_string();
        let wanted = match expected.as_str() {
            "u64" | "usize" => "a whole number",
            "a string" => "text",
            "path string" => "a path",
            "a boolean" => "true or false",
            "a sequence" => "a list, each of its tables under [[routes]]",
            other => other,
        };
        Problem::new(format_args!("write {wanted}; this is {found}"))
    }

    fn inside(self, outer: impl fmt::Display) -> Problem {
        Problem { place: format!("{outer}{}", self.place), ..self }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.place.trim_start_matches('.') {
            "" => f.write_str(&self.message),
            place => write!(f, "{place}: {}", self.message),
        }
    }
}

impl std::error::Error for Problem {}

impl de::Error for Problem {
    fn custom<T: fmt::Display>(message: T) -> Problem {
        Problem::new(message)
    }

    fn invalid_type(unexpected: Unexpected<'_>, expected: &dyn Expected) -> Problem {
        let found = match unexpected {
            Unexpected::Bool(_) => "true or false",
            Unexpected::Unsigned(_) => "a number",
            Unexpected::Str(_) => "text",
            Unexpected::Unit => "null",
            Unexpected::Seq => "a list",
            Unexpected::Map => "a table",
            Unexpected::Other(kind) => kind,
            _ => "something else",
        };
        Problem::unlike(found, expected)
    }

    fn invalid_value(_: Unexpected<'_>, expected: &dyn Expected) -> Problem {
        Problem::unlike("out of range", expected)
    }

    fn unknown_variant(_: &str, expected: &'static [&'static str]) -> Problem {
        Problem::new(format_args!("write {}; this is something else", listed(expected, " or ")))
    }

    fn unknown_field(field: &str, expected: &'static [&'static str]) -> Problem {
        // Shown only if it looks like a name: where a colon or a quote was forgotten, a password may have become one.
        let is_name = field.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        let found = if is_name { format!("there is no field `{field}`") } else { "there is no such field".to_owned() };
        Problem::new(format_args!("{found}; write one of {}", listed(expected, ", ")))
    }

    fn missing_field(field: &'static str) -> Problem {
        Problem::new(format_args!("the field `{field}` is missing; write {}", shape::example(field)))
    }
}

fn listed(names: &[&str], separator: &str) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(separator)
}

impl<'de> Deserializer<'de> for Tree {
    type Error = Problem;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Problem> {
        match self {
            Tree::Nothing => visitor.visit_unit(),
            Tree::Bool(value) => visitor.visit_bool(value),
            Tree::Whole(value) => visitor.visit_u64(value),
            Tree::Unfit(kind) => Err(de::Error::invalid_type(Unexpected::Other(kind), &visitor)),
            Tree::Text(text) => visitor.visit_string(text),
            Tree::List(list) => visitor.visit_seq(Items { list: list.into_iter(), index: 0 }),
            Tree::Table(table) => visitor.visit_map(Fields { table: table.into_iter(), field: None }),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Problem> {
        match self {
            Tree::Nothing => visitor.visit_none(),
            other => visitor.visit_some(other),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, Problem> {
        visitor.visit_newtype_struct(self)
    }

    /// As any, but no list: serde would take one for the fields in their order.
    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Problem> {
        match self {
            Tree::List(_) => Err(de::Error::invalid_type(Unexpected::Seq, &visitor)),
            other => other.deserialize_any(visitor),
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Problem> {
        match self {
            Tree::Text(text) => visitor.visit_enum(text.into_deserializer()),
            _ => Err(de::Error::unknown_variant("", variants)),
        }
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map identifier ignored_any
    }
}

struct Items {
    list: std::vec::IntoIter<Tree>,
    index: usize,
}

impl<'de> SeqAccess<'de> for Items {
    type Error = Problem;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Problem> {
        let Some(item) = self.list.next() else { return Ok(None) };
        let index = self.index;
        self.index += 1;
        seed.deserialize(item).map(Some).map_err(|problem| problem.inside(format_args!("[{index}]")))
    }
}

struct Fields {
    table: std::vec::IntoIter<(String, Tree)>,
    /// The field whose name was read and whose value was not yet.
    field: Option<(String, Tree)>,
}

impl<'de> MapAccess<'de> for Fields {
    type Error = Problem;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Problem> {
        self.field = self.table.next();
        let name = self.field.as_ref().map(|(name, _)| name.as_str().into_deserializer());
        name.map(|name: StrDeserializer<'_, Problem>| seed.deserialize(name)).transpose()
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Problem> {
        let (name, value) = self.field.take().unwrap_or((String::new(), Tree::Nothing));
        seed.deserialize(value).map_err(|problem| problem.inside(format_args!(".{name}")))
    }
}
