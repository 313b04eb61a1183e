//! How targets take their input apart.

/// The first byte; 0 behind the end.
pub(super) fn byte(rest: &mut &[u8]) -> u8 {
    rest.split_off_first().copied().unwrap_or_default()
}
