//! The layer before services: plain ones, hyper's and tonic's.

mod grpc;
mod ours;
mod served;
mod stacked;
mod waits;
