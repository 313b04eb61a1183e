//! HTTP, once for every framework and language: which rules a request has, who sent it, and what it is answered.

#[cfg_attr(not(test), expect(dead_code, reason = "the policy is what reads addresses"))]
mod client;
#[cfg_attr(not(test), expect(dead_code, reason = "the policy is what reads addresses"))]
mod forwarded;
#[cfg_attr(not(test), expect(dead_code, reason = "the policy is what reads addresses"))]
mod networks;

pub use client::Peer;
