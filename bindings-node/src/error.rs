//! What JavaScript catches: an error whose `code` is that of core's kind.

use tidegate::ErrorKind;

pub(crate) type Result<T> = napi::Result<T, &'static str>;

pub(crate) fn thrown(error: tidegate::Error) -> napi::Error<&'static str> {
    napi::Error::new(error.code(), error.message())
}

pub(crate) fn invalid(message: impl Into<String>) -> napi::Error<&'static str> {
    napi::Error::new(ErrorKind::InvalidRequest.code(), message.into())
}
