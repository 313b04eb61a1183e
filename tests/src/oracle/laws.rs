//! Law 1, by brute force over any history of charges as (time in microseconds, units), in any order.

/// Whether no window holds more than the limit. The fullest begins with a charge, so only those are tried.
#[must_use]
pub fn no_window_exceeds(charges: &[(u64, u64)], window: u64, limit: u64) -> bool {
    charges.iter().all(|&(start, _)| {
        let inside = charges.iter().filter(|&&(time, _)| (start..start + window).contains(&time));
        inside.map(|&(_, units)| units).sum::<u64>() <= limit
    })
}

/// Whether in every interval t at most `burst + t * quota / window` passed. The tightest begin and end with a charge.
#[must_use]
pub fn bucket_bound_holds(charges: &[(u64, u64)], burst: u64, quota: u64, window: u64) -> bool {
    let parts = |units: u64, times: u64| u128::from(units) * u128::from(times);
    let bound_holds = |start: u64, end: u64| {
        let inside = charges.iter().filter(|&&(time, _)| (start..=end).contains(&time));
        let passed = inside.map(|&(_, units)| units).sum();
        parts(passed, window) <= parts(burst, window) + parts(quota, end - start)
    };
    charges.iter().all(|&(start, _)| {
        let later = charges.iter().filter(|&&(end, _)| end >= start);
        later.into_iter().all(|&(end, _)| bound_holds(start, end))
    })
}
