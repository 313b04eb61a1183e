//! Where state lives.

pub(crate) mod memory;
pub(crate) mod redis;
