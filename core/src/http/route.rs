//! Which route a request has: the first that matches, in one pass over the path.

use regex::bytes::{RegexSet, RegexSetBuilder};

use super::invalid;
use super::plain::hex;
use crate::error::Result;

/// Finds the first of some patterns that matches a path.
#[derive(Debug)]
pub(crate) struct Matcher {
    set: RegexSet,
    case_sensitive: bool,
}

/// Room for the automaton of some ten thousand patterns, taken as it is needed: without it, matching is a thousand times
/// slower from two thousand on.
const DFA_SIZE: usize = 64 << 20;

/// How a route says which paths are its own.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Pattern<'a> {
    Path(&'a str),
    Prefix(&'a str),
}

impl Matcher {
    pub(crate) fn new<'a>(patterns: impl IntoIterator<Item = Pattern<'a>>, case_sensitive: bool) -> Result<Matcher> {
        let texts =
            patterns.into_iter().map(|pattern| pattern.expression(case_sensitive)).collect::<Result<Vec<_>>>()?;
        let set =
            RegexSetBuilder::new(texts).unicode(false).dot_matches_new_line(true).dfa_size_limit(DFA_SIZE).build();
        let set =
            set.map_err(|_| invalid("routes: their patterns are too large together; write fewer or shorter ones"))?;
        Ok(Matcher { set, case_sensitive })
    }

    /// The places of the patterns that match, the first one first.
    pub(crate) fn matches(&self, path: &str) -> impl Iterator<Item = usize> {
        self.set.matches(&normal(path, self.case_sensitive)).into_iter()
    }
}

impl Pattern<'_> {
    /// Two paths that it takes, with its parameters as they are written.
    pub(crate) fn samples(self) -> [String; 2] {
        match self {
            Pattern::Path(text) => [text.to_owned(), text.to_owned()],
            Pattern::Prefix(text) => [text.to_owned(), format!("{text}/{{any}}/{{any}}")],
        }
    }

    fn expression(self, case_sensitive: bool) -> Result<String> {
        let (field, text) = match self {
            Pattern::Path(text) => ("path", text),
            Pattern::Prefix(text) => ("prefix", text),
        };
        let within = |message: String| invalid(format!("{field} {text:?}: {message}"));
        if !text.starts_with('/') {
            return Err(within(
                match text.split_once("://").and_then(|(_, rest)| rest.find('/').map(|at| &rest[at..])) {
                    Some(path) => format!("a path is without scheme and host; write {path:?}"),
                    None if text.starts_with('^') => {
                        "regular expressions are not understood; write a path such as \"/items/{id}\"".into()
                    }
                    None => format!("a path begins with /; write \"/{text}\""),
                },
            ));
        }
        let mut text_once = text.to_owned();
        while text_once.contains("//") {
            text_once = text_once.replace("//", "/");
        }
        let mut expression = String::from("^");
        let mut rest = text_once.trim_end_matches('/');
        while let Some(open) = rest.find(['{', '}']) {
            let (before, from) = rest.split_at(open);
            let Some((name, after)) = from.strip_prefix('{').and_then(|from| from.split_once('}')) else {
                return Err(within("a brace is alone; write {name} for one segment, {*rest} for the rest".into()));
            };
            push_literal(&mut expression, before, case_sensitive);
            expression.push_str(match name.strip_prefix('*') {
                _ if !is_name(name.trim_start_matches('*')) => {
                    let message =
                        "a parameter has a name of letters, digits and _; write {name} or {*rest}, without a type";
                    return Err(within(message.into()));
                }
                Some(_) if !after.is_empty() => {
                    return Err(within("{*rest} takes the rest of the path, so nothing can follow it".into()));
                }
                // A slash before it is there already, and may stand alone.
                Some(_) => ".*",
                None => "[^/]+",
            });
            rest = after;
        }
        if text.split('/').any(|segment| [".", ".."].contains(&segment)) {
            return Err(within("clients resolve . and .. before they send a path; write it without them".into()));
        }
        if let Some(other) = foreign(text) {
            return Err(within(other));
        }
        if text.contains('\\') {
            return Err(within("a path has no backslashes; write /".into()));
        }
        push_literal(&mut expression, rest, case_sensitive);
        expression.push_str(match self {
            Pattern::Path(_) => "[/\\\\]*\n?$",
            Pattern::Prefix(_) => "(?:[/\\\\].*)?\n?$",
        });
        Ok(expression)
    }
}

fn is_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// Patterns of other routers, which would be taken literally and never match.
fn foreign(text: &str) -> Option<String> {
    if text.replace("{*", "{").contains(['*', '?', '#']) {
        return Some("* ? and # stand for nothing here; write {name} for one segment, {*rest} for the rest".into());
    }
    let parameter = text.split('/').find(|segment| segment.starts_with([':', '<', '^']) || segment.ends_with('$'))?;
    let (kind, name, after) = match parameter.strip_prefix('<').and_then(|rest| rest.split_once('>')) {
        Some((inner, after)) => {
            let (kind, name) = inner.rsplit_once(':').unwrap_or(("", inner));
            (kind, name, after)
        }
        None => {
            let name = parameter.trim_start_matches([':', '<', '^']);
            let end = name.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(name.len());
            ("", &name[..end], if name[end..].starts_with('.') { &name[end..] } else { "" })
        }
    };
    let star = if kind == "path" { "*" } else { "" };
    Some(format!("a parameter is written {{name}}; write \"{{{star}{name}}}{after}\" instead of {parameter:?}"))
}

/// A literal piece of a pattern, in the form in which paths are compared.
fn push_literal(expression: &mut String, literal: &str, case_sensitive: bool) {
    use std::fmt::Write as _;
    for byte in decoded(literal.as_bytes(), case_sensitive) {
        match byte {
            // Some parsers of URLs take a backslash for a slash, and some servers take several for one.
            b'/' => expression.push_str("[/\\\\]+"),
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' => expression.push(char::from(byte)),
            _ => {
                let _ = write!(expression, "\\x{byte:02x}");
            }
        }
    }
}

/// A path in the form in which paths are compared: without query and origin, with escapes decoded where that cannot change
/// its segments, in lower case unless that matters.
fn normal(path: &str, case_sensitive: bool) -> Vec<u8> {
    let path = path.split(['?', '#']).next().unwrap_or_default();
    let path = without_origin(path);
    let mut bytes = decoded(path.as_bytes(), case_sensitive);
    if !matches!(bytes.first(), Some(b'/' | b'\\')) {
        bytes.insert(0, b'/');
    }
    bytes
}

/// `http://host/path` is a legal target too.
fn without_origin(path: &str) -> &str {
    match path.split_once("://") {
        Some((scheme, rest)) if !path.starts_with('/') && scheme.bytes().all(|b| b.is_ascii_alphanumeric()) => {
            rest.find('/').map_or("", |slash| &rest[slash..])
        }
        _ => path,
    }
}

/// Escapes are decoded, but for `%2F`, which is no separator to those who leave it.
fn decoded(bytes: &[u8], case_sensitive: bool) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let [first, after @ ..] = rest {
        let escaped = match (first, after) {
            (b'%', [high, low, ..]) => hex(*high).zip(hex(*low)).map(|(high, low)| high << 4 | low),
            _ => None,
        };
        let byte = match escaped {
            Some(byte) if byte != b'/' => {
                rest = &after[2..];
                byte
            }
            _ => {
                rest = after;
                *first
            }
        };
        out.push(if case_sensitive { byte } else { byte.to_ascii_lowercase() });
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first(patterns: &[&str], path: &str) -> Option<usize> {
        let patterns = patterns.iter().map(|text| match text.strip_prefix("prefix ") {
            Some(prefix) => Pattern::Prefix(prefix),
            None => Pattern::Path(text),
        });
        Matcher::new(patterns, false).expect("good patterns").matches(path).next()
    }

    #[test]
    fn a_pattern_takes_what_an_application_might() {
        let matching = [
            ("/login", "/login"),
            ("/login", "/login/"),
            ("/login/", "/login"),
            ("/login", "//login"),
            ("/login", "/LOGIN"),
            ("/login", "/%6Cogin"),
            ("/login", "/%6c%6F%67in?next=/"),
            ("/login", "/login#top"),
            ("/login", "http://example.org/login"),
            ("/login", "\\login"),
            ("/", "/"),
            ("/", ""),
            ("/", "http://example.org"),
            ("/items/{id}", "/items/1"),
            ("/items/{id}", "/items/a%2Fb"),
            ("/items/{id}", "/items/%"),
            ("/items/{id}.json", "/items/1.json"),
            ("/files/{*rest}", "/files/a/b/c"),
            ("/files/{*rest}", "/files//"),
            ("/items/{id}", "/items/a\\b"),
            ("/login", "/login\n"),
            ("/login", "/login%0A"),
            ("/a/b", "/a\\b"),
            ("/a/b", "/a///b"),
            ("/caf\u{e9}", "/caf%C3%A9"),
            ("/caf%C3%A9", "/caf\u{e9}"),
            ("/a.b", "/a.b"),
            ("prefix /api/", "/api"),
            ("prefix /api", "/api/"),
            ("prefix /api/", "/api/a/b"),
            ("prefix /", "/anything/at/all"),
            ("prefix /", "*"),
            ("/login", "login"),
            ("prefix /t/{tenant}", "/t/7/x"),
        ];
        for (pattern, path) in matching {
            assert_eq!(first(&[pattern], path), Some(0), "{pattern} {path}");
        }
        let others = [
            ("/login", "/logins"),
            ("/login", "/login/x"),
            ("/login", "/x/login"),
            ("/items/{id}", "/items"),
            ("/items/{id}", "/items/1/2"),
            ("/a.b", "/axb"),
            ("prefix /api/", "/apis"),
            ("/a", "/%2Fa"),
        ];
        for (pattern, path) in others {
            assert_eq!(first(&[pattern], path), None, "{pattern} {path}");
        }
    }

    #[test]
    fn the_first_that_matches_is_first() {
        let patterns = ["/items/new", "/items/{id}", "prefix /items", "prefix /"];
        for (path, place) in [("/items/new", 0), ("/items/7", 1), ("/items/7/x", 2), ("/x", 3)] {
            assert_eq!(first(&patterns, path), Some(place), "{path}");
        }
    }

    #[test]
    fn letters_case_can_matter() {
        let matcher = Matcher::new([Pattern::Path("/Login")], true).expect("a good pattern");
        assert_eq!((matcher.matches("/Login").count(), matcher.matches("/login").count()), (1, 0));
    }

    #[test]
    fn says_what_to_write_instead() {
        let refused = [
            ("login", "write \"/login\""),
            ("/items/:id", "write \"{id}\""),
            ("/items/<int:id>", "write \"{id}\" instead of \"<int:id>\""),
            ("/items/<path:rest>", "write \"{*rest}\""),
            ("/items/:id.json", "write \"{id}.json\""),
            ("/items/:id(\\d+)", "write \"{id}\""),
            ("https://example.org/items", "write \"/items\""),
            ("^/items/(\\d+)$", "expressions are not understood"),
            ("/items/*", "{*rest}"),
            ("/items/{id", "a brace is alone"),
            ("/items/id}", "a brace is alone"),
            ("/items/{}", "a parameter has a name"),
            ("/items/{id:int}", "without a type"),
            ("/files/{*rest}/x", "nothing can follow"),
        ];
        for (pattern, hint) in refused {
            let error = Matcher::new([Pattern::Path(pattern)], false).expect_err(pattern);
            assert!(error.message().contains(hint), "{pattern}: {error}");
        }
    }
}
