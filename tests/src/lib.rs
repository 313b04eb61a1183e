//! What the workspace's tests share: real servers, an oracle in exact arithmetic, the runner of the vectors.

pub mod servers;
