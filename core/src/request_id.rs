//! Request ids, of the application and ours. A mark in front keeps them apart, whatever bytes an id holds.

use crate::error::{Error, ErrorKind, Result};

/// A marked id, or nothing: only logs need one.
pub(crate) type RequestId = Box<[u8]>;

const GIVEN: u8 = b'=';
const OURS: u8 = b'~';
/// The longest id that an application may give, in bytes.
const MAX_ID: usize = 200;

/// An application's id.
pub(crate) fn given(id: &[u8]) -> Result<RequestId> {
    if id.is_empty() || id.len() > MAX_ID {
        return Err(Error::new(
            ErrorKind::InvalidRequest,
            format!("a request id has 1 to {MAX_ID} bytes, and this one has {}", id.len()),
        ));
    }
    Ok([&[GIVEN], id].concat().into())
}

/// A new id of ours. The system's randomness and no generator of our own: a forked child must not repeat its parent's.
pub(crate) fn ours() -> Result<RequestId> {
    let mut bytes = [OURS; 13];
    getrandom::fill(&mut bytes[1..])
        .map_err(|error| Error::new(ErrorKind::StoreUnavailable, format!("the system has no randomness: {error}")))?;
    Ok(RequestId::from(bytes))
}

pub(crate) fn is_given(id: &[u8]) -> bool {
    id.first() == Some(&GIVEN)
}
