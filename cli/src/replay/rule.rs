//! A limit's text by another algorithm: what it names is replaced, and what the other one does not have is left out.

use tidegate::{Algorithm, Result, Rule};

pub(super) fn by(text: &str, algorithm: Algorithm) -> Result<Rule> {
    let pieces = text.split([';', ',', '\n']).filter(|piece| !piece.trim().is_empty());
    let mut rewritten: Vec<String> = pieces.map(|piece| rewrite(piece, algorithm)).collect();
    // By one algorithm two limits may have the same window; names keep them apart.
    for (number, limit) in rewritten.iter_mut().enumerate().skip(1) {
        if !limit.split(' ').any(|word| word == "named") {
            limit.push_str(&format!(" named {number}"));
        }
    }
    Rule::parse("replay", &rewritten.join("; "))
}

/// The text has been parsed already, so every option has its value.
fn rewrite(piece: &str, algorithm: Algorithm) -> String {
    let (mut kept, mut words) = (Vec::new(), piece.split_whitespace().peekable());
    while let Some(word) = words.next() {
        match word.to_ascii_lowercase().as_str() {
            "named" => kept.extend([Some(word), words.next()].into_iter().flatten()),
            "burst" if algorithm != Algorithm::TokenBucket => drop(words.next()),
            "precision" if algorithm != Algorithm::SlidingWindow => {
                // `1s`, or `1 second`.
                let whole = words.next().is_some_and(|time| time.ends_with(char::is_alphabetic));
                words.next_if(|_| !whole);
            }
            // A shadow is replayed as if it blocked: what it would refuse is what is asked.
            "shadow" => {}
            name if Algorithm::parse(name).is_ok() => {}
            _ => kept.push(word),
        }
    }
    kept.push(algorithm.name());
    kept.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_keeps_what_the_algorithm_has() {
        for (text, bucket, window, log) in [
            ("20/m", "20/m token_bucket", "20/m sliding_window", "20/m sliding_window_log"),
            ("5/s burst 9 GCRA", "5/s burst 9 token_bucket", "5/s sliding_window", "5/s sliding_window_log"),
            (
                "5 per 2 minutes precision 1 second shadow",
                "5 per 2 minutes token_bucket",
                "5 per 2 minutes precision 1 second sliding_window",
                "5 per 2 minutes sliding_window_log",
            ),
            (
                "5/m precision 1s named gcra",
                "5/m named gcra token_bucket",
                "5/m precision 1s named gcra sliding_window",
                "5/m named gcra sliding_window_log",
            ),
        ] {
            assert_eq!(rewrite(text, Algorithm::TokenBucket), bucket);
            assert_eq!(rewrite(text, Algorithm::SlidingWindow), window);
            assert_eq!(rewrite(text, Algorithm::SlidingWindowLog), log);
        }
    }

    #[test]
    fn every_text_makes_a_rule_by_every_algorithm() {
        for &algorithm in Algorithm::ALL {
            for text in [
                "100/m; 20/m burst 5",
                "10/m sliding_window; 10/m token_bucket",
                "20/m",
                "100/m; 1000/h",
                "5/s burst 9, 100 per day\n",
                "5/m precision 1 second",
            ] {
                assert!(by(text, algorithm).is_ok(), "{text} {algorithm}");
            }
        }
    }
}
