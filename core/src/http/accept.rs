//! `Accept` (RFC 9110, 12.5.1) for the three media types of refusals. The crates that parse it are either abandoned or
//! part of a framework, and this much of it is short.

use super::refusal::Form;

/// What is beyond so many bytes is not looked at: real values have a few hundred.
const MAX_BYTES: usize = 4096;
/// A weight of 1, in thousandths: weights have up to three digits.
const WHOLE: u16 = 1_000;
/// What is offered, the best first where the client does not care.
const OFFERED: [(Form, &str, &str); 3] = [
    (Form::Problem, "application", "problem+json"),
    (Form::Json, "application", "json"),
    (Form::Text, "text", "plain"),
];

/// The form that the client likes best; problem details if it likes none, since a refusal must say something.
pub(super) fn preferred(accept: &[u8]) -> Form {
    let mut weights = [Weight::default(); OFFERED.len()];
    for range in elements(&accept[..accept.len().min(MAX_BYTES)]).filter_map(Range::parse) {
        for (weight, (form, kind, subtype)) in weights.iter_mut().zip(OFFERED) {
            if let Some(specificity) = range.specificity(form, kind, subtype) {
                *weight = (*weight).max(Weight { specificity, thousandths: range.thousandths });
            }
        }
    }
    let liked = OFFERED.iter().zip(weights).filter(|(_, weight)| weight.thousandths > 0);
    // The first of equals.
    let best = liked.min_by_key(|(_, weight)| std::cmp::Reverse(weight.thousandths));
    best.map_or(Form::Problem, |((form, _, _), _)| *form)
}

/// How much one form is liked: by the most specific range that covers it, and the largest weight of equals.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Weight {
    specificity: u8,
    thousandths: u16,
}

/// A media range with its weight. Its other parameters do not matter: each type is offered in one way.
struct Range<'a> {
    kind: &'a [u8],
    subtype: &'a [u8],
    thousandths: u16,
}

impl<'a> Range<'a> {
    /// None for what is not a media range.
    fn parse(element: &'a [u8]) -> Option<Range<'a>> {
        let mut parts = split(element, b';').map(<[u8]>::trim_ascii);
        let name = parts.next()?;
        // Java's own client sends a lone star.
        let name = if name == b"*" { b"*/*" } else { name };
        let slash = name.iter().position(|byte| *byte == b'/')?;
        let weight = parts.find_map(|part| part.strip_prefix(b"q=").or_else(|| part.strip_prefix(b"Q=")));
        let thousandths = weight.map_or(Some(WHOLE), thousandths)?;
        Some(Range { kind: &name[..slash], subtype: &name[slash + 1..], thousandths })
    }

    /// How closely it means what is offered; none if it does not.
    fn specificity(&self, form: Form, kind: &str, subtype: &str) -> Option<u8> {
        let is = |name: &[u8], other: &str| name.eq_ignore_ascii_case(other.as_bytes());
        if is(self.kind, kind) && is(self.subtype, subtype) {
            return Some(4);
        }
        // Browsers name HTML, and show text as well.
        if form == Form::Text && is(self.kind, "text") && is(self.subtype, "html") {
            return Some(3);
        }
        match (self.kind, self.subtype) {
            (own, b"*") if is(own, kind) => Some(2),
            (b"*", b"*") => Some(1),
            _ => None,
        }
    }
}

/// `0.5` is 500; a number may lack what stands before the point, as Java's does.
fn thousandths(weight: &[u8]) -> Option<u16> {
    let (units, decimals) = match weight.iter().position(|byte| *byte == b'.') {
        Some(point) => (&weight[..point], &weight[point + 1..]),
        None if weight.is_empty() => return None,
        None => (weight, &[][..]),
    };
    let units = match units {
        b"" | b"0" => 0,
        b"1" => WHOLE,
        _ => return None,
    };
    if decimals.len() > 3 || !decimals.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let digits = decimals.iter().chain(b"000").take(3);
    let sum = units + digits.fold(0, |sum, digit| sum * 10 + u16::from(digit - b'0'));
    (sum <= WHOLE).then_some(sum)
}

fn elements(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    split(value, b',').map(<[u8]>::trim_ascii).filter(|element| !element.is_empty())
}

/// Splits, but not inside quoted strings.
fn split(value: &[u8], separator: u8) -> impl Iterator<Item = &[u8]> {
    let (mut quoted, mut escaped) = (false, false);
    value.split(move |byte| {
        let is_literal = std::mem::take(&mut escaped);
        match byte {
            _ if is_literal => {}
            b'\\' => escaped = quoted,
            b'"' => quoted = !quoted,
            _ => return !quoted && *byte == separator,
        }
        false
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn preferred_of(accept: &str) -> Form {
        preferred(accept.as_bytes())
    }

    #[test]
    fn the_form_that_the_client_likes_best() {
        let browser = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8";
        for (accept, form) in [
            // No wish that can be met.
            ("", Form::Problem),
            (" , ,, ", Form::Problem),
            ("image/png", Form::Problem),
            ("*/*;q=0", Form::Problem),
            // One wish.
            ("application/json", Form::Json),
            ("application/problem+json", Form::Problem),
            ("text/plain", Form::Text),
            ("APPLICATION/JSON", Form::Json),
            ("application/json; charset=utf-8", Form::Json),
            ("*/*", Form::Problem),
            ("application/*", Form::Problem),
            ("text/*", Form::Text),
            // Weights.
            ("application/json;q=0.5, text/plain;q=0.501", Form::Text),
            ("application/json; Q=0.5 , text/plain ;q=0.4", Form::Json),
            ("application/problem+json;q=0.1, application/json", Form::Json),
            ("text/plain;q=1.000, application/json;q=0.999", Form::Text),
            ("text/plain;q=0, image/png", Form::Problem),
            // Equals: problem details, then JSON, then text.
            ("text/plain, application/json, application/problem+json", Form::Problem),
            ("text/plain, application/json", Form::Json),
            ("application/json, text/plain, */*", Form::Problem),
            // The closest range counts, not the first or the best.
            ("*/*, application/problem+json;q=0", Form::Json),
            ("application/problem+json;q=0.2, application/*;q=0.3, */*", Form::Text),
            ("*/*;q=0.9, application/*;q=0.1", Form::Text),
            ("application/*;q=0, */*", Form::Text),
            ("application/json;q=0.1, application/json;q=0.9, text/plain;q=0.5", Form::Json),
            // Browsers, and others that take HTML.
            (browser, Form::Text),
            ("text/html", Form::Text),
            ("text/html;q=0.3, application/json;q=0.4", Form::Json),
            ("text/plain;q=0, text/html, application/json;q=0.1", Form::Json),
            ("text/html, image/gif, image/jpeg, *; q=.2, */*; q=.2", Form::Text),
            // Not media ranges, or no weights: as if they were not there.
            ("application/json;q=2, text/plain;q=0.1", Form::Text),
            ("application/json;q=0.0001, text/plain;q=0.1", Form::Text),
            ("application/json;q=-1, text/plain;q=0.1", Form::Text),
            ("application/json;q=, text/plain;q=0.1", Form::Text),
            ("application/json;q=1.001, text/plain;q=0.1", Form::Text),
            ("json, text/plain;q=0.1", Form::Text),
            ("*/json, text/plain;q=0.1", Form::Text),
            // Quoted strings hold separators.
            ("image/png;a=\",text/plain;\\\",\", application/json", Form::Json),
            ("application/json;a=\";q=0\";q=1, text/plain;q=0.5", Form::Json),
            ("text/plain;a=\"never closed, application/json", Form::Text),
        ] {
            assert_eq!(preferred_of(accept), form, "{accept}");
        }
    }

    #[test]
    fn values_that_nobody_means_are_judged_in_bounded_time() {
        let long = format!("{}text/plain", "image/png,".repeat(100_000));
        assert_eq!(preferred_of(&long), Form::Problem, "the end is not looked at");
        assert_eq!(preferred_of(&format!("text/plain, {}", ";,\"\\=/".repeat(100_000))), Form::Text);
        assert_eq!(preferred(b"\xff\x00/\xfe, text/plain;\x80"), Form::Text);
    }
}
