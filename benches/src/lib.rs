//! Ours and the peers', side by side in one run: what the benches share.
//!
//! `lua-cost` counts what a check costs the server, in instructions and in bytes; the bench `memory` compares the memory
//! store with governor. Each prints a table for people, and with `JSON=1` a line per case for programs.

pub mod report;
