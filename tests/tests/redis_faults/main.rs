//! Redis fails, moves and comes back: law 14, R1, R8, the failure policy, and what a cluster does while it is in use.

mod announced;
mod moves;
mod once;
mod policy;
mod proxy;
mod secrets;
mod sentinel;
mod unready;
