//! One rule for everybody, and a customer's own limits at the call. Rules come from a document that all services
//! share; `TIDEGATE_URL` puts their state on a server.

use std::io::Write as _;
use std::path::Path;

use tidegate::{Document, Limiter};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let document = Document::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("rules.toml"))?;
    let limiter = Limiter::builder().document(&document).build()?;
    let mut out = std::io::stdout();

    for (customer, limits) in [("free", None), ("gold", Some("50/s burst 60; 100000/h"))] {
        let mut admitted = 0;
        for _ in 0..40 {
            let check = limiter.check("api", customer);
            let check = if let Some(limits) = limits { check.limits(limits) } else { check };
            admitted += u32::from(check.wait()?.allowed());
        }
        writeln!(out, "{customer}: {admitted} of 40 requests at once")?;
    }

    // The same request twice is charged once: its id is in the log.
    let first = limiter.check("export", "gold").request_id("export 7").wait()?;
    let again = limiter.check("export", "gold").request_id("export 7").wait()?;
    writeln!(out, "export 7: {} left, and {} left when it is sent again", first.remaining(), again.remaining())?;
    Ok(())
}
