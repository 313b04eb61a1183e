//! HTTP, once for every framework and language: which rules a request has, who sent it, and what it is answered.

mod accept;
#[cfg_attr(not(test), expect(dead_code, reason = "the policy is what reads addresses"))]
mod client;
#[cfg_attr(not(test), expect(dead_code, reason = "the policy is what reads addresses"))]
mod forwarded;
#[cfg_attr(not(test), expect(dead_code, reason = "the policy is what answers requests"))]
mod headers;
#[cfg_attr(not(test), expect(dead_code, reason = "the policy is what reads addresses"))]
mod networks;
mod quota;
#[cfg_attr(not(test), expect(dead_code, reason = "the policy is what answers requests"))]
mod refusal;
#[cfg(test)]
mod responses;

pub use client::Peer;
