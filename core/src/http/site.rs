//! What a document says of HTTP, judged: its routes with their keys, costs and exemptions.

use std::collections::HashMap;
use std::sync::Arc;

use super::client::Client;
use super::headers::{self, Fields};
use super::invalid;
use super::key::{Exempt, KeySource, Source};
use super::refusal::Form;
use super::route::{Matcher, Pattern};
use crate::document::http::{
    CLASSES, Cost as CostShape, Http, Mode, Route as RouteShape, Status, Texts, WithoutIdentity,
};
use crate::error::{Error, Result};
use crate::key::MAX_NAME;
use crate::rule::{MAX_UNITS, Rule};

/// All routes, and what holds for each of them.
#[derive(Debug)]
pub(crate) struct Site {
    pub(crate) client: Client,
    pub(crate) fields: Fields,
    pub(crate) form: Form,
    pub(crate) log_keys: bool,
    pub(crate) routes: Vec<Route>,
    matcher: Matcher,
    /// The routes of the matcher's patterns, in order.
    matched: Vec<usize>,
    default: Option<usize>,
    /// The request headers that any route reads, in lower case.
    pub(crate) headers: Vec<String>,
}

/// The lines of a request's headers that the site reads: each the place of its name, and its value.
pub(crate) type Lines = Vec<(usize, Vec<u8>)>;

/// Some requests, and the rules that they have.
#[derive(Debug)]
pub(crate) struct Route {
    pub(crate) name: Arc<str>,
    methods: Option<Vec<String>>,
    /// Rules by their key: each group is decided together.
    pub(crate) groups: Vec<Group>,
    pub(crate) cost: Cost,
    /// The site's, and the route's own.
    pub(crate) exempt: [Arc<Exempt>; 2],
    pub(crate) is_shadow: bool,
    pub(crate) refund: Refund,
    /// What of the request is asked for.
    pub(crate) needs: Needs,
}

#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) key: KeySource,
    pub(crate) without: WithoutIdentity,
    pub(crate) rules: Vec<String>,
}

#[derive(Debug)]
pub(crate) enum Cost {
    Units(u64),
    /// By method, 1 for others.
    ByMethod(Vec<(String, u64)>),
    Supplied(String),
}

/// Which statuses of responses give the charge back.
#[derive(Debug, Default)]
pub(crate) struct Refund {
    ranges: Vec<(u16, u16)>,
}

#[derive(Debug, Default)]
pub(crate) struct Needs {
    pub(crate) user: bool,
    pub(crate) address: bool,
    pub(crate) headers: Vec<String>,
    pub(crate) values: Vec<String>,
    pub(crate) questions: Vec<String>,
}

impl Site {
    /// The lines of a header, by its name in lower case.
    pub(crate) fn lines<'a>(&self, lines: &'a Lines, name: &str) -> impl Iterator<Item = &'a [u8]> {
        let wanted = self.headers.iter().position(|known| known == name);
        lines.iter().filter(move |(place, _)| Some(*place) == wanted).map(|(_, value)| &value[..])
    }

    pub(crate) fn new(http: &Http, shapes: &[RouteShape], rules: &[Rule]) -> Result<Site> {
        let (client, fields, form, exempt) = parts(http).map_err(|error| error.within("http"))?;
        let route = |shape: &RouteShape, name: &str| Route::new(shape, name, &exempt, &client, rules);
        let (mut routes, mut patterns, mut matched) = (Vec::with_capacity(shapes.len() + 1), Vec::new(), Vec::new());
        for (place, shape) in shapes.iter().enumerate() {
            let within = |error: Error| error.within(format!("routes[{place}] ({})", name_of(shape)));
            if let Some(pattern) = pattern(shape).map_err(within)? {
                // Each alone, so that an error has its place.
                Matcher::new([pattern], http.case_sensitive).map_err(within)?;
                patterns.push(pattern);
                matched.push(place);
            }
            routes.push(route(shape, &name_of(shape)).map_err(within)?);
        }
        let default = http.default.as_ref().map(|shape| {
            let is_plain = shape.path.is_none() && shape.prefix.is_none() && shape.methods.is_none();
            let judged = if is_plain { route(shape, "default") } else { Err(invalid(NOT_PLAIN)) };
            judged.map_err(|error| error.within("http.default"))
        });
        let default = default.transpose()?.map(|route| {
            routes.push(route);
            routes.len() - 1
        });
        named_apart(&routes)?;
        let matcher = Matcher::new(patterns.iter().copied(), http.case_sensitive)?;
        all_reached(&routes, &matcher, &patterns, &matched)?;
        let mut headers: Vec<String> = routes.iter().flat_map(|route| route.needs.headers.iter().cloned()).collect();
        // For refusals, and for whoever asks for the client's address.
        headers.extend(["accept", client.header().unwrap_or("accept")].map(str::to_owned));
        headers.sort_unstable();
        headers.dedup();
        Ok(Site { client, fields, form, log_keys: http.log_keys, routes, matcher, matched, default, headers })
    }

    /// The request's route, if it has one.
    pub(crate) fn route(&self, method: &str, path: &str) -> Option<usize> {
        let places = self.matcher.matches(path).map(|place| self.matched[place]);
        places.into_iter().find(|place| self.routes[*place].takes(method)).or(self.default)
    }

    /// What any route asks the application for: users, and what goes by names.
    #[cfg(feature = "tower")]
    pub(crate) fn needs(&self) -> impl Iterator<Item = (&str, &Needs)> {
        self.routes.iter().map(|route| (&*route.name, &route.needs))
    }

    /// The route of a name.
    pub(crate) fn named(&self, name: &str) -> Option<usize> {
        self.routes.iter().position(|route| &*route.name == name)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.routes.is_empty()
    }
}

const NOT_PLAIN: &str = "it is for all requests that no other route matches; leave path, prefix and methods out";

/// Counters and logs tell routes by their names.
fn named_apart(routes: &[Route]) -> Result<()> {
    let mut names = HashMap::with_capacity(routes.len());
    for (place, route) in routes.iter().enumerate() {
        if let Some(other) = names.insert(&*route.name, place) {
            return Err(invalid(format!(
                "routes[{place}]: routes[{other}] is named {:?} too; give one of them a name of its own",
                route.name
            )));
        }
    }
    Ok(())
}

/// A route that an earlier one takes every request of is a mistake: a limit that never holds.
fn all_reached(routes: &[Route], matcher: &Matcher, patterns: &[Pattern<'_>], matched: &[usize]) -> Result<()> {
    for (place, pattern) in matched.iter().zip(patterns) {
        // Its parameters stand for anything, and braces are in no path that is written out.
        let takes_all = |path: &str| {
            let earlier = matcher.matches(path).map(|index| matched[index]).take_while(|other| other < place);
            earlier.filter(|other| routes[*other].takes_all_of(&routes[*place])).collect::<Vec<_>>()
        };
        let paths = pattern.samples();
        let taken = takes_all(&paths[0]).into_iter().find(|other| takes_all(&paths[1]).contains(other));
        if let Some(other) = taken {
            let (name, first) = (&routes[*place].name, &routes[other].name);
            return Err(invalid(format!(
                "routes[{place}] ({name}) is never reached: routes[{other}] ({first}) takes all of its requests; put it \
                 before that one"
            )));
        }
    }
    Ok(())
}

fn parts(http: &Http) -> Result<(Client, Fields, Form, Arc<Exempt>)> {
    let source = http.client_address.as_deref();
    let client = Client::new(&http.trusted_proxies.0, source, http.ipv4_prefix, http.ipv6_prefix)?;
    let default = headers::DEFAULT.map(str::to_owned);
    let names = http.headers.as_ref().map_or(&default[..], |Texts(names)| names);
    let fields = Fields::new(names, http.x_ratelimit_reset.as_deref(), http.partition_key)?;
    let form = http.refusal.as_deref().map_or(Ok(Form::Auto), Form::parse)?;
    let exempt = Arc::new(Exempt::new(&http.exempt, &client)?);
    Ok((client, fields, form, exempt))
}

fn pattern(shape: &RouteShape) -> Result<Option<Pattern<'_>>> {
    match (&shape.path, &shape.prefix) {
        (Some(_), Some(_)) => Err(invalid("path and prefix are both there; write one of them")),
        (Some(path), None) => Ok(Some(Pattern::Path(path))),
        (None, Some(prefix)) => Ok(Some(Pattern::Prefix(prefix))),
        (None, None) if shape.name.is_some() => Ok(None),
        (None, None) => Err(invalid(
            "it has no path; write path = \"/items/{id}\" or prefix = \"/api/\", or a name for a route that the \
             application asks for itself",
        )),
    }
}

/// The name of a route that was given none: its methods and path.
fn name_of(shape: &RouteShape) -> String {
    let path = shape.path.as_deref().or(shape.prefix.as_deref()).unwrap_or_default();
    match &shape.methods {
        Some(Texts(methods)) => format!("{} {path}", methods.join(",").to_ascii_uppercase()),
        None => path.to_owned(),
    }
}

impl Route {
    fn new(
        shape: &RouteShape,
        default_name: &str,
        all: &Arc<Exempt>,
        client: &Client,
        rules: &[Rule],
    ) -> Result<Route> {
        let name = shape.name.as_deref().unwrap_or(default_name);
        if name.is_empty() || (shape.name.is_some() && name.len() > MAX_NAME) {
            return Err(invalid(format!("the name has {} bytes; write 1 to {MAX_NAME}", name.len())));
        }
        let groups = groups(shape, client, rules)?;
        let exempt = [Arc::clone(all), Arc::new(Exempt::new(&shape.exempt, client)?)];
        let cost = Cost::new(shape.cost.as_ref())?;
        cost.fits(&groups, rules)?;
        let needs = Needs::new(&groups, &exempt, &cost, client);
        Ok(Route {
            name: name.into(),
            methods: methods(shape.methods.as_ref())?,
            groups,
            cost,
            exempt,
            is_shadow: shape.mode == Mode::Shadow,
            refund: Refund::new(&shape.refund_status.0)?,
            needs,
        })
    }

    /// Whether its methods are all of the other's.
    fn takes_all_of(&self, other: &Route) -> bool {
        match (&self.methods, &other.methods) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(_), Some(methods)) => methods.iter().all(|method| self.takes(method)),
        }
    }

    fn takes(&self, method: &str) -> bool {
        let takes = |name: &str| name.eq_ignore_ascii_case(method);
        // Frameworks answer HEAD by what answers GET.
        let head = method.eq_ignore_ascii_case("HEAD");
        self.methods.as_ref().is_none_or(|names| names.iter().any(|name| takes(name) || (head && name == "GET")))
    }
}

fn methods(texts: Option<&Texts>) -> Result<Option<Vec<String>>> {
    let Some(Texts(names)) = texts else { return Ok(None) };
    if names.is_empty() {
        return Err(invalid("methods is an empty list; leave it out for all methods"));
    }
    names.iter().map(|name| method(name)).collect::<Result<_>>().map(Some)
}

fn method(name: &str) -> Result<String> {
    if ["*", "ANY", "ALL"].contains(&&*name.to_ascii_uppercase()) {
        return Err(invalid(format!("{name:?} is no method; leave methods out for all of them")));
    }
    if super::key::is_token(name) {
        return Ok(name.to_ascii_uppercase());
    }
    Err(invalid(format!("{name:?} is no method; write one such as \"POST\"")))
}

fn unknown(name: &str, rules: &[Rule]) -> Error {
    let names: Vec<&str> = rules.iter().map(Rule::name).collect();
    let all: Vec<&str> = name.split([',', ';', ' ']).filter(|name| !name.is_empty()).collect();
    let hint = if all.len() > 1 && all.iter().all(|name| names.contains(name)) {
        format!("write a list: {all:?}")
    } else if crate::rates::parse(name).is_ok() {
        "a rate stands in [rules] under a name; write that name here".to_owned()
    } else if names.is_empty() {
        "write it in [rules]".to_owned()
    } else {
        format!("the rules are: {}", names.join(", "))
    };
    invalid(format!("there is no rule {name:?}; {hint}"))
}

/// The route's rules, those of one key together, in the order written.
fn groups(shape: &RouteShape, client: &Client, rules: &[Rule]) -> Result<Vec<Group>> {
    let mut groups: Vec<Group> = Vec::new();
    for (place, rule) in shape.rules.0.iter().enumerate() {
        if !rules.iter().any(|known| known.name() == rule.rule) {
            return Err(unknown(&rule.rule, rules));
        }
        let key = rule.key.as_ref().or(shape.key.as_ref()).ok_or_else(|| {
            invalid(format!("rule {:?} has no key; write who is limited, such as key = \"ip\"", rule.rule))
        })?;
        let within = |error: Error| match rule.key {
            Some(_) => error.within(format!("rules[{place}].key")),
            None => error.within("key"),
        };
        let key = KeySource::parse(key, client).map_err(within)?;
        // What is said of the route's key is not said of an address beside it, which is only missing by mistake.
        let is_said = rule.key.is_none() || key.needs_choice();
        let without = match rule.without_identity.or(shape.without_identity.filter(|_| is_said)) {
            Some(choice) => choice,
            None if key.needs_choice() => {
                return Err(invalid(format!(
                    "some requests do not have the key of rule {:?}; write without_identity = \"refuse\", \"share\" (all of \
                     them share one bucket) or \"skip\" (the rule does not apply)",
                    rule.rule
                )));
            }
            None => WithoutIdentity::Refuse,
        };
        if groups.iter().any(|group| group.key == key && group.rules.contains(&rule.rule)) {
            return Err(invalid(format!("rule {:?} is there twice with one key; write it once", rule.rule)));
        }
        match groups.iter_mut().find(|group| group.key == key && group.without == without) {
            Some(group) => group.rules.push(rule.rule.clone()),
            None => groups.push(Group { key, without, rules: vec![rule.rule.clone()] }),
        }
    }
    Ok(groups)
}

impl Cost {
    fn new(shape: Option<&CostShape>) -> Result<Cost> {
        let judged = |units: u64| match units {
            0 => Err(invalid("cost 0 charges nothing; write 1 or more, or rules = [] for a route without limits")),
            1..=MAX_UNITS => Ok(units),
            _ => Err(invalid(format!("cost {units} is too large; write 1 to {MAX_UNITS}"))),
        };
        Ok(match shape {
            None => Cost::Units(1),
            Some(CostShape::Units(units)) => Cost::Units(judged(*units)?),
            Some(CostShape::ByMethod(table)) => Cost::ByMethod(
                table.iter().map(|(name, units)| Ok((method(name)?, judged(*units)?))).collect::<Result<_>>()?,
            ),
            Some(CostShape::Supplied(text)) => match text.strip_prefix("app:") {
                Some(name) if !name.is_empty() => Cost::Supplied(name.to_owned()),
                _ => {
                    return Err(invalid(
                        "write the cost as a number, by method such as { POST = 5 }, or \"app:NAME\" for what the \
                         application supplies",
                    ));
                }
            },
        })
    }
}

impl Cost {
    /// A cost that a rule never admits is a mistake, unless the rule refuses everything.
    fn fits(&self, groups: &[Group], rules: &[Rule]) -> Result<()> {
        let costs: Vec<u64> = match self {
            Cost::Units(units) => vec![*units],
            Cost::ByMethod(table) => table.iter().map(|(_, units)| *units).collect(),
            Cost::Supplied(_) => Vec::new(),
        };
        let names = || groups.iter().flat_map(|group| &group.rules);
        for rule in rules.iter().filter(|rule| names().any(|name| name == rule.name())) {
            let most = rule
                .limits()
                .iter()
                .filter(|limit| limit.enforce)
                .map(|limit| u64::from(if limit.quota == 0 { 0 } else { limit.burst }))
                .min();
            if let (Some(cost), Some(most @ 1..)) = (costs.iter().max(), most)
                && *cost > most
            {
                let name = rule.name();
                return Err(invalid(format!(
                    "cost {cost} is more than rule {name:?} ever admits at once; write at most {most}, or raise the rule"
                )));
            }
        }
        Ok(())
    }
}

impl Refund {
    fn new(shapes: &[Status]) -> Result<Refund> {
        let range = |shape: &Status| match shape {
            Status::One(status) => match u16::try_from(*status) {
                Ok(status @ 100..=599) => Ok((status, status)),
                _ => Err(invalid(format!("{status} is no status; write 100 to 599"))),
            },
            Status::Class(text) => match (1_u16..).zip(CLASSES).find(|(_, class)| class == text) {
                Some((digit, _)) => Ok((digit * 100, digit * 100 + 99)),
                None => {
                    Err(invalid(format!("refund_status {text:?} is not known; write a number such as 404, or \"5xx\"")))
                }
            },
        };
        Ok(Refund { ranges: shapes.iter().map(range).collect::<Result<_>>()? })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    pub(crate) fn holds(&self, status: u16) -> bool {
        self.ranges.iter().any(|(from, to)| (*from..=*to).contains(&status))
    }
}

impl Needs {
    fn new(groups: &[Group], exempt: &[Arc<Exempt>; 2], cost: &Cost, client: &Client) -> Needs {
        let mut needs = Needs::default();
        // A route without rules asks for nothing.
        if groups.is_empty() {
            return needs;
        }
        for source in groups.iter().flat_map(|group| group.key.sources()).chain(exempt.iter().flat_map(|e| e.sources()))
        {
            match source {
                Source::Address => needs.address = true,
                Source::User => needs.user = true,
                Source::Header(name) => needs.headers.push(name.clone()),
                Source::Cookie(_) => needs.headers.push("cookie".to_owned()),
                Source::App(name) => needs.values.push(name.clone()),
                Source::Constant(_) => {}
            }
        }
        if let Cost::Supplied(name) = cost {
            needs.values.push(name.clone());
        }
        needs.address |= exempt.iter().any(|exempt| exempt.has_networks());
        if needs.address {
            needs.headers.extend(client.header().map(str::to_owned));
        }
        needs.questions.extend(exempt.iter().flat_map(|exempt| exempt.questions.iter().cloned()));
        for names in [&mut needs.headers, &mut needs.values, &mut needs.questions] {
            names.sort_unstable();
            names.dedup();
        }
        needs
    }
}
