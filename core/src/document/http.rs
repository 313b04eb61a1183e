//! `[http]` and `[[routes]]` as they are written. What they mean is judged in `crate::http`.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};

/// What holds for all requests.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, expecting = "a table with fields such as trusted_proxies")]
pub(crate) struct Http {
    /// Whose word on the client's address is believed: networks, addresses, `loopback`, `private`, `unix`.
    pub(crate) trusted_proxies: Texts,
    /// The request header in which they say it: `X-Forwarded-For`, `Forwarded`, or one such as `CF-Connecting-IP`.
    pub(crate) client_address: Option<String>,
    /// How many bits of an IPv4 address are the key: 32 unless said.
    #[schemars(range(min = 8, max = 32), extend("default" = 32))]
    pub(crate) ipv4_prefix: Option<u8>,
    /// How many bits of an IPv6 address are the key: 64 unless said.
    #[schemars(range(min = 32, max = 128), extend("default" = 64))]
    pub(crate) ipv6_prefix: Option<u8>,
    /// The response's fields: `draft-10`, `draft-7` or `draft-6`, and `x-ratelimit`.
    pub(crate) headers: Option<Texts>,
    /// What `X-RateLimit-Reset` says: `epoch` or `delta`.
    #[schemars(extend("default" = "epoch"))]
    pub(crate) x_ratelimit_reset: Option<String>,
    /// Adds `pk` to `draft-10`.
    #[schemars(extend("default" = false))]
    pub(crate) partition_key: bool,
    /// The body of a refusal: `auto` (by Accept), `problem`, `json` or `text`.
    #[schemars(extend("default" = "auto"))]
    pub(crate) refusal: Option<String>,
    /// Who passes every route without being counted.
    pub(crate) exempt: Exempt,
    /// Whether letters' case matters in paths.
    #[schemars(extend("default" = false))]
    pub(crate) case_sensitive: bool,
    /// Whether the log of refusals has the key.
    #[schemars(extend("default" = false))]
    pub(crate) log_keys: bool,
    /// The route of requests that no other matches: without `path`, `prefix` and `methods`.
    pub(crate) default: Option<Route>,
}

/// Requests, and the rules that they have.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a table with rules, and path or prefix")]
pub(crate) struct Route {
    /// For metrics and logs: methods and path unless said.
    #[schemars(length(min = 1, max = crate::key::MAX_NAME))]
    pub(crate) name: Option<String>,
    /// A pattern: `/items/{id}`, `/files/{*rest}`.
    pub(crate) path: Option<String>,
    /// All paths that begin so, instead of `path`.
    pub(crate) prefix: Option<String>,
    /// Such as `GET`, which is for `HEAD` too; all unless said.
    pub(crate) methods: Option<Texts>,
    /// The rules by name, some with a key of their own; an empty list for a route that is not limited.
    pub(crate) rules: RouteRules,
    /// Who is limited: `ip`, `user`, `header:NAME`, `cookie:NAME`, `app:NAME`, `constant:TEXT`; a list for all together,
    /// `user or ip` for the first that is there.
    pub(crate) key: Option<Texts>,
    /// What to do where the key is missing.
    pub(crate) without_identity: Option<WithoutIdentity>,
    /// The units that a request takes: a number, a table by method, or `app:NAME`.
    pub(crate) cost: Option<Cost>,
    /// Who passes without being counted.
    #[serde(default)]
    pub(crate) exempt: Exempt,
    /// `shadow` lets everything pass, and reports what it would have refused.
    #[serde(default)]
    #[schemars(extend("default" = "enforce"))]
    pub(crate) mode: Mode,
    /// The statuses of responses whose charge is given back: `404`, `"5xx"`.
    #[serde(default)]
    pub(crate) refund_status: Statuses,
}

/// Who passes without being counted.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, expecting = "a table with networks, keys or app")]
pub(crate) struct Exempt {
    /// Networks of clients.
    pub(crate) networks: Texts,
    /// A source and a value: `user:root`, `header:x-api-key:4711`.
    pub(crate) keys: Texts,
    /// Questions that the application answers with yes.
    pub(crate) app: Texts,
}

/// What to do with a request that does not have the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub(crate) enum WithoutIdentity {
    Refuse,
    Share,
    Skip,
}

/// Whether a route refuses, or only reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub(crate) enum Mode {
    #[default]
    Enforce,
    Shadow,
}

/// A text, or a list of texts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Texts(pub(crate) Vec<String>);

/// The rules of a route.
#[derive(Debug, Clone)]
pub(crate) struct RouteRules(pub(crate) Vec<RouteRule>);

/// A rule with a key of its own.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a table with rule")]
pub(crate) struct RouteRule {
    /// The rule's name.
    pub(crate) rule: String,
    /// Who is limited, as in the route.
    pub(crate) key: Option<Texts>,
    /// What to do where the key is missing, as in the route.
    pub(crate) without_identity: Option<WithoutIdentity>,
}

/// The units that a request takes.
#[derive(Debug, Clone)]
pub(crate) enum Cost {
    Units(u64),
    ByMethod(BTreeMap<String, u64>),
    Supplied(String),
}

/// Statuses and classes of them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Statuses(pub(crate) Vec<Status>);

/// A status, or a class such as `5xx`.
#[derive(Debug, Clone)]
pub(crate) enum Status {
    One(u64),
    Class(String),
}

/// Reads a value of one of several kinds.
macro_rules! one_of {
    ($type:ident, $expecting:literal, $($visit:item)+) => {
        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<$type, D::Error> {
                struct Here;

                impl<'de> Visitor<'de> for Here {
                    type Value = $type;

                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str($expecting)
                    }

                    $($visit)+
                }

                deserializer.deserialize_any(Here)
            }
        }
    };
}

/// Reads what may be written as one or as a list of them.
macro_rules! one_or_list {
    ($type:ident of $item:ty, one: $one:expr, each: $each:expr, $expecting:literal, $($visit:item)+) => {
        one_of! {
            $type, $expecting,
            fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<$type, A::Error> {
                let items = Vec::<$item>::deserialize(SeqAccessDeserializer::new(list))?;
                Ok($type(items.into_iter().map(Into::into).collect()))
            }
            $($visit)+
        }

        impl JsonSchema for $type {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> Cow<'static, str> {
                stringify!($type).into()
            }

            fn json_schema(generator: &mut SchemaGenerator) -> Schema {
                let (one, each): (Schema, Schema) = ($one(generator), $each(generator));
                json_schema!({ "anyOf": [one, { "type": "array", "items": each }] })
            }
        }
    };
}

one_or_list! {
    Texts of String, one: text_schema, each: text_schema, "text, or a list of texts",
    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Texts, E> {
        Ok(Texts(vec![text.to_owned()]))
    }
}

one_or_list! {
    RouteRules of Item, one: text_schema, each: item_schema,
    "a rule's name, or a list of names and of tables with rule and key",
    fn visit_str<E: serde::de::Error>(self, name: &str) -> Result<RouteRules, E> {
        Ok(RouteRules(vec![RouteRule::named(name)]))
    }
}

one_or_list! {
    Statuses of Status, one: status_schema, each: status_schema,
    "a status such as 404, a class such as \"5xx\", or a list of them",
    fn visit_str<E: serde::de::Error>(self, class: &str) -> Result<Statuses, E> {
        Ok(Statuses(vec![Status::Class(class.to_owned())]))
    }
    fn visit_u64<E: serde::de::Error>(self, status: u64) -> Result<Statuses, E> {
        Ok(Statuses(vec![Status::One(status)]))
    }
}

/// The classes of statuses, by their first digit.
pub(crate) const CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];

fn text_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string" })
}

fn item_schema(generator: &mut SchemaGenerator) -> Schema {
    json_schema!({ "anyOf": [{ "type": "string" }, generator.subschema_for::<RouteRule>()] })
}

fn status_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "anyOf": [{ "type": "integer", "minimum": 100, "maximum": 599 }, { "enum": CLASSES }] })
}

impl RouteRule {
    fn named(name: &str) -> RouteRule {
        RouteRule { rule: name.to_owned(), key: None, without_identity: None }
    }
}

/// A rule of a route's list: a name, or a table.
struct Item(RouteRule);

impl From<Item> for RouteRule {
    fn from(item: Item) -> RouteRule {
        item.0
    }
}

one_of! {
    Item, "a rule's name, or a table with rule and key",
    fn visit_str<E: serde::de::Error>(self, name: &str) -> Result<Item, E> {
        Ok(Item(RouteRule::named(name)))
    }
    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Item, A::Error> {
        RouteRule::deserialize(MapAccessDeserializer::new(map)).map(Item)
    }
}

one_of! {
    Status, "a status such as 404, or a class such as \"5xx\"",
    fn visit_str<E: serde::de::Error>(self, class: &str) -> Result<Status, E> {
        Ok(Status::Class(class.to_owned()))
    }
    fn visit_u64<E: serde::de::Error>(self, status: u64) -> Result<Status, E> {
        Ok(Status::One(status))
    }
}

one_of! {
    Cost, "a whole number, a table such as { POST = 5 }, or \"app:NAME\"",
    fn visit_u64<E: serde::de::Error>(self, units: u64) -> Result<Cost, E> {
        Ok(Cost::Units(units))
    }
    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Cost, E> {
        Ok(Cost::Supplied(text.to_owned()))
    }
    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Cost, A::Error> {
        BTreeMap::deserialize(MapAccessDeserializer::new(map)).map(Cost::ByMethod)
    }
}

impl JsonSchema for Cost {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Cost".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let units = json_schema!({ "type": "integer", "minimum": 1, "maximum": crate::rule::MAX_UNITS });
        let by_method = json_schema!({ "type": "object", "additionalProperties": units });
        json_schema!({ "anyOf": [units, by_method, { "type": "string", "pattern": "^app:" }] })
    }
}
