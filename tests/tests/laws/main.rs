//! The laws of the contract, each as a black-box test in every store that it concerns. Law 13 is the vectors', and
//! law 14 stands in `redis_faults`, since it takes a broken connection.

mod changes;
mod counting;
mod keys;
mod numbers;
mod refunds;
mod time;
mod together;
