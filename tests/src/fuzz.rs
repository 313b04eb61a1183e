//! What fuzzers run. A target takes any bytes, and panics where what must always hold does not.
//!
//! `fuzz/` gives them to libFuzzer (`make fuzz`), and `tests/fuzz.rs` plays the seeds and a few thousand mutations of them.

mod address;
mod bytes;
mod document;
mod headers;
mod key;

pub use address::address;
pub use document::document;
pub use headers::headers;
pub use key::key;

/// A name, and what is done with any bytes.
pub type Target = (&'static str, fn(&[u8]));

/// Every target by name: the names of `fuzz/fuzz_targets` and of the folders in `fuzz/seeds`.
pub const TARGETS: &[Target] = &[("address", address), ("document", document), ("headers", headers), ("key", key)];
