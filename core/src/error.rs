//! Everything that can go wrong, listed once; the bindings make one exception class or code of each kind.

use std::fmt;

macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident = $code:literal,)+) => {
        /// What kind of thing went wrong. The code of a kind never changes.
        #[non_exhaustive]
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum ErrorKind {
            $($(#[$doc])* $kind,)+
        }

        impl ErrorKind {
            /// Every kind, in the order in which they are documented.
            pub const ALL: &'static [ErrorKind] = &[$(ErrorKind::$kind,)+];

            /// The stable name of the kind, the same in every language.
            #[must_use]
            pub const fn code(self) -> &'static str {
                match self {
                    $(ErrorKind::$kind => $code,)+
                }
            }
        }
    };
}

kinds! {
    /// A rule or limit that cannot be meant: its text, its numbers, or two limits that would share one key.
    InvalidRule = "invalid_rule",
    /// The configuration document: its syntax, an unknown field, an unknown version, a file that cannot be read.
    InvalidDocument = "invalid_document",
    /// A call that cannot be meant: cost 0, an empty key, a request id where no log limit would see it.
    InvalidRequest = "invalid_request",
    /// A rule that the limiter does not have.
    UnknownRule = "unknown_rule",
    /// The store did not answer, refused the connection or the login, or is not ready (loading, read-only, down).
    StoreUnavailable = "store_unavailable",
    /// No answer within the deadline. Whether a charge was made is unknown, and it is not sent again.
    Timeout = "timeout",
    /// The store answered, and refused: out of memory, no permission.
    StoreRefused = "store_refused",
    /// The store is too old: Redis 7.0 or Valkey 7.2 is needed.
    UnsupportedServer = "unsupported_server",
    /// A stored key holds something that Tidegate did not write. `reset` cures it.
    CorruptState = "corrupt_state",
    /// The receipt was refunded already, or is not one of ours.
    InvalidReceipt = "invalid_receipt",
}

/// An error: its kind, and a message that says what to do.
///
/// A refusal is never an error, and a store that fails is none for `check` either: there the rule's `on_error` decides
/// and [`Decision::failure`](crate::Decision::failure) says what happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    kind: ErrorKind,
    message: String,
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Error {
        Error { kind, message: without_logins(message.into()) }
    }

    /// What kind of error this is.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The stable name of the kind: `kind().code()`.
    #[must_use]
    pub fn code(&self) -> &'static str {
        self.kind.code()
    }

    /// The message without the code.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The same error with what it concerns put before its message.
    pub(crate) fn within(self, place: impl fmt::Display) -> Error {
        Error { kind: self.kind, message: format!("{place}: {}", self.message) }
    }
}

/// A message may quote what was written in a wrong place, and that may be a URL with its user and password.
fn without_logins(message: String) -> String {
    let Some(from) = message.find("://").map(|colon| colon + 3) else { return message };
    match message[from..].find('@') {
        Some(end) if !message[from..from + end].contains(char::is_whitespace) => {
            let rest = without_logins(message[from + end..].to_owned());
            format!("{}***{rest}", &message[..from])
        }
        _ => message,
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code(), self.message)
    }
}

impl std::error::Error for Error {}

/// The result of everything that can fail here.
pub type Result<T, E = Error> = std::result::Result<T, E>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_login_is_quoted_wherever_it_was_written() {
        let shown = |message: &str| Error::new(ErrorKind::InvalidDocument, message).message;
        assert_eq!(shown("prefix \"redis://u:hunter2@h:1\" is bad"), "prefix \"redis://***@h:1\" is bad");
        assert_eq!(shown("a://u:p@h and b://:q@h"), "a://***@h and b://***@h");
        assert_eq!(shown("redis://h:1 and who@example.org"), "redis://h:1 and who@example.org");
    }
}
