//! HTTP: the vectors through a policy on every store, and what vectors cannot say.

mod failures;
mod policies;
mod reload;
mod several;
mod stacked;
mod told;
mod vectors;
