//! HTTP: what the vectors of requests cannot say.

mod beside;
mod failures;
mod policies;
mod reload;
mod several;
mod stacked;
mod told;
