//! Examples: `cargo run -p tidegate-examples --bin tiers`. The snippets of the README and the docs are tests here.

/// The README's snippet.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;

/// The snippets of the page on rules.
#[cfg(doctest)]
#[doc = include_str!("../../docs/rules.md")]
struct Rules;

/// The snippets of the page on HTTP.
#[cfg(doctest)]
#[doc = include_str!("../../docs/http.md")]
struct Http;

/// The snippets of the page on what to choose.
#[cfg(doctest)]
#[doc = include_str!("../../docs/choosing.md")]
struct Choosing;

/// The snippets of the page on the document.
#[cfg(doctest)]
#[doc = include_str!("../../docs/document.md")]
struct Document;
