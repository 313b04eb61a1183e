//! The document as it is written: the names and types of its fields, and their schema. What they mean is judged after.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};

use super::http::{Http, Route};
use super::store::Store;
use crate::error::{Error, Result};
use crate::http::Site;
use crate::rates;
use crate::rule::{Algorithm, Limit, MAX_UNITS, OnError, Rule};

/// Tidegate's configuration.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a table that begins with version = 1")]
#[schemars(title = "Tidegate document")]
pub(super) struct Shape {
    version: Version,
    #[serde(default)]
    store: Store,
    #[serde(default)]
    rules: Rules,
    #[serde(default)]
    http: Http,
    /// Which rules requests have: the first route that matches is a request's.
    #[serde(default)]
    routes: Vec<Route>,
}

impl Shape {
    pub(super) fn judged(self) -> Result<(Store, Vec<Rule>, Site)> {
        let Shape { version: Version::One, store, rules, http, routes } = self;
        store.check()?;
        let rules = rules.0.into_iter().map(|(name, rule)| rule.judged(name)).collect::<Result<Vec<_>>>()?;
        let site = Site::new(&http, &routes, &rules)?;
        Ok((store, rules, site))
    }
}

/// How a field is written that must not be missing.
pub(super) fn example(field: &str) -> &'static str {
    match field {
        "version" => "version = 1",
        "limits" => "limits = \"100/m\", or a list of limits",
        "limit" => "limit = 100, the units per window",
        "window" => "window = \"1m\"",
        "rules" => "rules = \"NAME\", or a list of names; [] for none",
        "rule" => "rule = \"NAME\"",
        _ => "it",
    }
}

/// The version of the document's format: 1.
#[derive(Deserialize, JsonSchema)]
#[serde(try_from = "u64")]
#[schemars(inline, with = "u64", extend("const" = 1))]
enum Version {
    One,
}

impl TryFrom<u64> for Version {
    type Error = String;

    fn try_from(version: u64) -> Result<Version, String> {
        match version {
            1 => Ok(Version::One),
            _ => Err(format!("this release does not know version {version} of the document; write version = 1")),
        }
    }
}

/// The rules by name, in the order in which they are written.
#[derive(Default, JsonSchema)]
#[schemars(inline)]
struct Rules(#[schemars(with = "BTreeMap<String, RuleShape>")] Vec<(String, RuleShape)>);

/// A rule: rates as text, a list of limits, or a table.
struct RuleShape(RuleTable);

/// A rule with more than limits.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct RuleTable {
    /// Rates as text, or a list of limits.
    limits: Limits,
    /// What to answer when the store fails.
    #[serde(default)]
    #[schemars(extend("default" = "allow"))]
    on_error: OnErrorShape,
    /// With `on_error = "local"`: how many processes share the limits while they cannot ask the store.
    #[schemars(range(min = 1))]
    share: Option<u32>,
    /// Whether the rule blocks; with `false` every limit of it only reports.
    #[serde(default = "yes")]
    #[schemars(extend("default" = true))]
    enforce: bool,
}

#[derive(Deserialize, JsonSchema, Default)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
enum OnErrorShape {
    #[default]
    Allow,
    Deny,
    Local,
}

impl OnErrorShape {
    fn judged(self, share: Option<u32>) -> Result<OnError> {
        match (self, share) {
            (OnErrorShape::Local, Some(0)) => {
                Err(super::invalid("share is 0; write how many processes serve the rule"))
            }
            (OnErrorShape::Local, share) => Ok(OnError::Local { share: share.unwrap_or(1) }),
            (_, Some(_)) => {
                Err(super::invalid("share is of on_error = \"local\" alone; write that too, or leave share out"))
            }
            (OnErrorShape::Allow, None) => Ok(OnError::Allow),
            (OnErrorShape::Deny, None) => Ok(OnError::Deny),
        }
    }
}

/// The limits of one rule: rates as text, or a list.
struct Limits(Vec<LimitShape>);

/// A rate as text, or a table.
enum LimitShape {
    Text(String),
    Table(LimitTable),
}

/// One limit.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct LimitTable {
    /// The units per window.
    #[schemars(range(max = MAX_UNITS))]
    limit: u64,
    /// A duration with a unit, such as `"1m"`: 1 ms to 366 days.
    window: String,
    /// How the limit counts: `sliding_window`, or `token_bucket` if there is a burst.
    #[serde(default)]
    #[schemars(schema_with = "algorithm_schema")]
    algorithm: Option<String>,
    /// The units that a token bucket admits at once.
    #[schemars(range(max = MAX_UNITS))]
    burst: Option<u64>,
    /// The grid of a sliding window's times: a duration with a unit, from 1 ms to the window.
    precision: Option<String>,
    /// Gives the limit a state of its own beside another of the same algorithm and window.
    #[schemars(length(min = 1, max = crate::key::MAX_NAME))]
    name: Option<String>,
    /// Whether the limit blocks; with `false` it only reports.
    #[serde(default = "yes")]
    #[schemars(extend("default" = true))]
    enforce: bool,
}

fn yes() -> bool {
    true
}

impl RuleShape {
    fn of(limits: Limits) -> RuleShape {
        RuleShape(RuleTable { limits, on_error: OnErrorShape::default(), share: None, enforce: yes() })
    }

    fn judged(self, name: String) -> Result<Rule> {
        let RuleShape(RuleTable { limits, on_error, share, enforce }) = self;
        let within = |error: Error| error.within(format!("rule {name:?}"));
        let on_error = on_error.judged(share).map_err(within)?;
        let mut judged = Vec::new();
        for shape in limits.0 {
            judged.extend(shape.limits().map_err(within)?);
        }
        for limit in &mut judged {
            limit.enforce &= enforce;
        }
        Ok(Rule::new(name, judged)?.on_error(on_error))
    }
}

impl LimitShape {
    fn limits(self) -> Result<Vec<Limit>> {
        match self {
            LimitShape::Text(text) => rates::parse(&text),
            LimitShape::Table(table) => Ok(vec![table.limit()?]),
        }
    }
}

impl LimitTable {
    fn limit(self) -> Result<Limit> {
        let window = rates::parse_duration(&self.window).map_err(|error| error.within("window"))?;
        let precision = self.precision.as_deref().map(rates::parse_duration).transpose();
        let algorithm = self.algorithm.as_deref().map(Algorithm::parse).transpose()?;
        Ok(Limit {
            algorithm: algorithm.unwrap_or(rates::implied(self.burst)),
            burst: self.burst,
            precision: precision.map_err(|error| error.within("precision"))?,
            name: self.name,
            enforce: self.enforce,
            ..Limit::new(self.limit, window)
        })
    }
}

// What may be text, a list or a table is told by what is there, and then read as that one alone: serde's untagged enums
// try every form and then cannot say what was wrong.

impl<'de> Deserialize<'de> for Rules {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Rules, D::Error> {
        deserializer.deserialize_any(RulesVisitor)
    }
}

struct RulesVisitor;

impl<'de> Visitor<'de> for RulesVisitor {
    type Value = Rules;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a table of rules, such as login = \"5/m\"")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Rules, A::Error> {
        let mut rules = Vec::new();
        while let Some(rule) = map.next_entry()? {
            rules.push(rule);
        }
        Ok(Rules(rules))
    }
}

impl<'de> Deserialize<'de> for RuleShape {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<RuleShape, D::Error> {
        deserializer.deserialize_any(RuleVisitor)
    }
}

impl JsonSchema for RuleShape {
    fn schema_name() -> Cow<'static, str> {
        "Rule".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        json_schema!({ "anyOf": [generator.subschema_for::<Limits>(), generator.subschema_for::<RuleTable>()] })
    }
}

struct RuleVisitor;

impl<'de> Visitor<'de> for RuleVisitor {
    type Value = RuleShape;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a rate such as \"100/m\", a list of limits, or a table with limits")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<RuleShape, E> {
        LimitsVisitor.visit_str(text).map(RuleShape::of)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<RuleShape, A::Error> {
        LimitsVisitor.visit_seq(list).map(RuleShape::of)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<RuleShape, A::Error> {
        RuleTable::deserialize(MapAccessDeserializer::new(map)).map(RuleShape)
    }
}

impl<'de> Deserialize<'de> for Limits {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Limits, D::Error> {
        deserializer.deserialize_any(LimitsVisitor)
    }
}

impl JsonSchema for Limits {
    fn schema_name() -> Cow<'static, str> {
        "Limits".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        json_schema!({ "anyOf": [rate_schema(), { "type": "array", "items": generator.subschema_for::<LimitShape>() }] })
    }
}

struct LimitsVisitor;

impl<'de> Visitor<'de> for LimitsVisitor {
    type Value = Limits;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a rate such as \"100/m\", or a list of limits")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Limits, E> {
        Ok(Limits(vec![LimitShape::Text(text.to_owned())]))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Limits, A::Error> {
        Vec::deserialize(SeqAccessDeserializer::new(list)).map(Limits)
    }
}

impl<'de> Deserialize<'de> for LimitShape {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<LimitShape, D::Error> {
        deserializer.deserialize_any(LimitVisitor)
    }
}

impl JsonSchema for LimitShape {
    fn schema_name() -> Cow<'static, str> {
        "Limit".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        json_schema!({ "anyOf": [rate_schema(), generator.subschema_for::<LimitTable>()] })
    }
}

struct LimitVisitor;

impl<'de> Visitor<'de> for LimitVisitor {
    type Value = LimitShape;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a rate such as \"100/m\", or a table with limit and window")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<LimitShape, E> {
        Ok(LimitShape::Text(text.to_owned()))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<LimitShape, A::Error> {
        LimitTable::deserialize(MapAccessDeserializer::new(map)).map(LimitShape::Table)
    }
}

fn rate_schema() -> Schema {
    json_schema!({ "type": "string", "examples": ["100/m", "1000/h"] })
}

fn algorithm_schema(_: &mut SchemaGenerator) -> Schema {
    let names = Algorithm::ALL.iter().map(|algorithm| algorithm.name()).chain(["gcra"]).map(Some);
    let names: Vec<Option<&str>> = names.chain([None]).collect();
    json_schema!({ "type": ["string", "null"], "enum": names })
}
