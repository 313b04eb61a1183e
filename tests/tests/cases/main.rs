//! Faults that users of other rate limiters reported: `shared/cases` lists them, and each test bears its case's number.
//! C1, R5, P3 and P5 take several processes or threads and stand in `processes`; R1, R2 and R8 in `redis_faults`.

mod count;
mod keys;
mod waiting;
