//! Errors: a variant of each of core's kinds, whose text is `code: message`.

use tidegate::{Error, ErrorKind};

macro_rules! kinds {
    ($($kind:ident,)+) => {
        /// What went wrong. The text of each is `code: message`, and the code of a kind never changes.
        #[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, uniffi::Error)]
        #[uniffi(flat_error)]
        #[allow(missing_docs, reason = "core's ErrorKind documents them")]
        pub enum TidegateError {
            $(#[error("{0}")] $kind(String),)+
            /// Of a kind that this library does not know.
            #[error("{0}")]
            Unknown(String),
        }

        impl From<Error> for TidegateError {
            fn from(error: Error) -> TidegateError {
                match error.kind() {
                    $(ErrorKind::$kind => TidegateError::$kind(error.to_string()),)+
                    // ErrorKind may grow; a test compares the lists.
                    _ => TidegateError::Unknown(error.to_string()),
                }
            }
        }

        #[cfg(test)]
        const NAMES: &[&str] = &[$(stringify!($kind),)+];
    };
}

kinds! {
    InvalidRule,
    InvalidDocument,
    InvalidRequest,
    UnknownRule,
    StoreUnavailable,
    Timeout,
    StoreRefused,
    UnsupportedServer,
    CorruptState,
    InvalidReceipt,
}

/// An error as a value: its code, and the message without it.
#[derive(Debug, Clone, PartialEq, Eq, uniffi::Record)]
pub struct Failure {
    /// The stable name of its kind.
    pub code: String,
    /// What to do.
    pub message: String,
}

impl From<&Error> for Failure {
    fn from(error: &Error) -> Failure {
        Failure { code: error.code().to_owned(), message: error.message().to_owned() }
    }
}

impl From<TidegateError> for Failure {
    fn from(error: TidegateError) -> Failure {
        let text = error.to_string();
        let (code, message) = text.split_once(": ").unwrap_or_default();
        Failure { code: code.to_owned(), message: message.to_owned() }
    }
}

/// What cannot be meant, and what to write instead.
pub(crate) fn invalid(message: impl std::fmt::Display) -> TidegateError {
    TidegateError::InvalidRequest(format!("{}: {message}", ErrorKind::InvalidRequest.code()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_the_core_has_its_variant() {
        let named = |code: &str| code.split('_').map(|word| word[..1].to_uppercase() + &word[1..]).collect::<String>();
        let kinds: Vec<String> = ErrorKind::ALL.iter().map(|kind| named(kind.code())).collect();
        assert_eq!(NAMES, kinds, "write core's kinds, in their order, into kinds! above");
    }

    #[test]
    fn a_failure_is_the_same_error() {
        let error = tidegate::parse_duration("soon").expect_err("it is no duration");
        assert_eq!(Failure::from(TidegateError::from(error.clone())), Failure::from(&error));
    }
}
