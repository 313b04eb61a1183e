//! HTTP, once for every framework and language: which rules a request has, who sent it, and what it is answered.

mod accept;
mod admission;
mod client;
mod forwarded;
mod headers;
mod key;
mod metrics;
mod networks;
mod plain;
mod policy;
mod quota;
mod refusal;
mod request;
mod route;
mod several;
mod site;

pub use admission::{Admission, Outcome};
pub use client::Peer;
pub use metrics::{PolicyMetrics, RouteCount};
pub use policy::Policy;
pub use request::Request;
pub(crate) use site::Site;

use crate::error::{Error, ErrorKind};

fn invalid(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidDocument, message)
}
