//! Keeping to somebody else's limit: each worker waits for its turn.

use std::io::Write as _;
use std::thread;
use std::time::Duration;

use tidegate::{Limiter, Result};

fn main() -> Result<()> {
    let limiter = Limiter::builder().rule("mail", "100/s burst 5").build()?;
    let workers: Vec<_> = (0..4)
        .map(|_| {
            thread::spawn({
                let limiter = limiter.clone();
                move || send(&limiter)
            })
        })
        .collect();
    let sent: u32 = workers.into_iter().map(|worker| worker.join().unwrap_or(Ok(0))).sum::<Result<u32>>()?;
    let _ = writeln!(std::io::stdout(), "{sent} of 20 mails sent, at 100 a second after the first five");
    Ok(())
}

/// Five mails, each in its turn.
fn send(limiter: &Limiter) -> Result<u32> {
    let mut sent = 0;
    for _ in 0..5 {
        let turn = limiter.acquire("mail", "smtp.example").timeout(Duration::from_secs(5)).wait()?;
        sent += u32::from(turn.allowed());
    }
    Ok(sent)
}
