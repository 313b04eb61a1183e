//! What a refused request is answered: problem details (RFC 9457), JSON or a line of text.

use serde_json::json;

use super::accept;
use super::headers::retry_seconds;
use super::quota::{names, quotas};
use crate::decision::Decision;
use crate::error::{Error, ErrorKind, Result};

/// The form of bodies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// Which of the others, the client's `Accept` says.
    Auto,
    Problem,
    Json,
    Text,
}

/// Why a request is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    /// A limit refuses it.
    Limited,
    /// The store failed, and the rule's `on_error` refuses what cannot be counted.
    StoreFailed,
    /// It does not say whom to count it for, and the route wants that.
    NoIdentity,
}

/// A response to a refused request, but for the fields that tell of limits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Body {
    pub(crate) status: u16,
    pub(crate) content_type: &'static str,
    pub(crate) text: String,
    /// Whether another `Accept` might have got another form.
    negotiated: bool,
}

impl Form {
    /// A form by its name in a document.
    ///
    /// # Errors
    /// `invalid_document` for any other name.
    pub(crate) fn parse(name: &str) -> Result<Form> {
        match name {
            "auto" => Ok(Form::Auto),
            "problem" => Ok(Form::Problem),
            "json" => Ok(Form::Json),
            "text" => Ok(Form::Text),
            _ => Err(Error::new(
                ErrorKind::InvalidDocument,
                format!("refusal {name:?} is not known; write \"auto\", \"problem\", \"json\" or \"text\""),
            )),
        }
    }
}

impl Cause {
    fn status(self) -> u16 {
        match self {
            Cause::Limited => 429,
            Cause::StoreFailed => 503,
            Cause::NoIdentity => 403,
        }
    }

    /// The name of the status.
    fn reason(self) -> &'static str {
        match self {
            Cause::Limited => "Too Many Requests",
            Cause::StoreFailed => "Service Unavailable",
            Cause::NoIdentity => "Forbidden",
        }
    }

    /// The type and title that the draft registers, or those of a plain status.
    fn problem(self) -> (&'static str, &'static str) {
        match self {
            Cause::Limited => ("https://iana.org/assignments/http-problem-types#quota-exceeded", "Quota Exceeded"),
            Cause::StoreFailed => (
                "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity",
                "Temporary Reduced Capacity",
            ),
            Cause::NoIdentity => ("about:blank", "Forbidden"),
        }
    }

    /// A sentence or two for whoever reads it, without anything of the inside.
    fn detail(self, retry_seconds: Option<u64>) -> String {
        match (self, retry_seconds) {
            (Cause::Limited, Some(1)) => "Too many requests. Try again in 1 second.".to_owned(),
            (Cause::Limited, Some(seconds)) => format!("Too many requests. Try again in {seconds} seconds."),
            (Cause::Limited, None) => "Too many requests. This request can never pass.".to_owned(),
            (Cause::StoreFailed, _) => "Requests cannot be accepted at the moment. Try again later.".to_owned(),
            (Cause::NoIdentity, _) => "The request does not say who sends it.".to_owned(),
        }
    }
}

impl Body {
    /// The fields that belong to the body. No cache may keep a refusal (RFC 6585 for 429): it is about one moment.
    pub(crate) fn fields(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        let fields = [("Content-Type", self.content_type), ("Cache-Control", "no-store")];
        fields.into_iter().chain(self.negotiated.then_some(("Vary", "Accept")))
    }
}

/// The answer to a refused request. `accept` is the client's `Accept`, its lines joined by commas; only
/// [`Form::Auto`] looks at it.
pub(crate) fn body(cause: Cause, form: Form, accept: Option<&[u8]>, decisions: &[Decision]) -> Body {
    let negotiated = form == Form::Auto;
    let form = if negotiated { accept.map_or(Form::Problem, accept::preferred) } else { form };
    let retry = retry_seconds(decisions);
    let (content_type, text) = match form {
        Form::Text => ("text/plain; charset=utf-8", cause.detail(retry) + "\n"),
        Form::Json => ("application/json", plain_json(cause, retry)),
        Form::Auto | Form::Problem => ("application/problem+json", problem(cause, retry, decisions)),
    };
    Body { status: cause.status(), content_type, text, negotiated }
}

fn problem(cause: Cause, retry_seconds: Option<u64>, decisions: &[Decision]) -> String {
    let (kind, title) = cause.problem();
    let detail = cause.detail(retry_seconds);
    let mut members = json!({"type": kind, "title": title, "status": cause.status(), "detail": detail});
    if cause == Cause::Limited {
        let quotas = quotas(decisions).into_iter().zip(names(decisions));
        let refusing = quotas.filter(|(quota, _)| !quota.limit.allowed());
        members["violated-policies"] = refusing.map(|(_, name)| name).collect();
    }
    members.to_string()
}

/// `retry_after_seconds` is null for a request that can never pass.
fn plain_json(cause: Cause, retry_seconds: Option<u64>) -> String {
    let mut members = json!({"error": cause.reason()});
    if cause == Cause::Limited {
        members["retry_after_seconds"] = json!(retry_seconds);
    }
    members.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_are_named() {
        assert_eq!(Form::parse("auto"), Ok(Form::Auto));
        let error = Form::parse("html").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidDocument);
        assert!(error.message().contains("write \"auto\", \"problem\", \"json\" or \"text\""), "{error}");
    }

    #[test]
    fn bodies_byte_by_byte() {
        let limiter = crate::Limiter::builder().rule("say \"hi\"", "1/h fixed_window; 0/m").build().unwrap();
        let decisions = [limiter.check("say \"hi\"", "a").wait().unwrap()];
        let text = |cause, form| body(cause, form, None, &decisions).text;
        assert_eq!(
            text(Cause::Limited, Form::Problem),
            r#"{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Quota Exceeded","#
                .to_owned()
                + r#""status":429,"detail":"Too many requests. This request can never pass.","violated-policies":["say \"hi\":2"]}"#
        );
        assert_eq!(text(Cause::Limited, Form::Json), r#"{"error":"Too Many Requests","retry_after_seconds":null}"#);
        assert_eq!(text(Cause::StoreFailed, Form::Json), r#"{"error":"Service Unavailable"}"#);
        assert_eq!(text(Cause::NoIdentity, Form::Text), "The request does not say who sends it.\n");
    }
}
