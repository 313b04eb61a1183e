//! What the workspace's tests share: real servers, limiters on each, an oracle in exact arithmetic.

pub mod fuzz;
pub mod limiters;
pub mod oracle;
pub mod servers;
