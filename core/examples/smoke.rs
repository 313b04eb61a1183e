use std::time::Duration;
use tidegate::{Algorithm, Limit, Limiter, Rule};
fn main() {
    let url = std::env::args().nth(1);
    let mut b = Limiter::builder();
    for a in Algorithm::ALL {
        b = b.rules([Rule::new(a.name(), [Limit::new(3, Duration::from_secs(60)).algorithm(a)]).unwrap()]);
    }
    b = b.rule("multi", "3/s burst 3; 100/m; 5/h fixed_window");
    if let Some(u) = &url {
        b = b.url(u);
    }
    let l = b.deadline(Duration::from_secs(1)).build().unwrap();
    println!("ready {:?}", l.ready(Duration::from_secs(3)).wait());
    let key = format!("k{}", std::process::id());
    for a in l.rules().map(str::to_owned).collect::<Vec<_>>() {
        let mut last = None;
        for _ in 0..4 {
            let d = l.check(&a, &key).wait().unwrap();
            println!(
                "{a:24} {:5} rem {} retry {:?} reset {:?} {:?} {:?}",
                d.allowed(),
                d.remaining(),
                d.retry_after(),
                d.reset_after(),
                d.origin(),
                d.failure()
            );
            if d.allowed() {
                last = Some(d.receipt());
            }
        }
        let r = last.unwrap();
        let text = r.to_string();
        println!(
            "refund {:?} again {:?}",
            l.refund(&text.parse().unwrap()).wait(),
            l.refund(&r).wait().map_err(|e| e.code())
        );
        let d = l.peek(&a, &key).wait().unwrap();
        println!("peek rem {} {:?}", d.remaining(), d.limits().next());
        println!(
            "count {:?} {:?}",
            l.count(&a, &key, Duration::from_secs(1)).add(2).wait(),
            l.count(&a, &key, Duration::from_secs(1)).add(0).wait()
        );
        println!("reset {:?} {}", l.reset(&a, &key).wait(), l.peek(&a, &key).wait().unwrap().remaining());
    }
    let t = std::time::Instant::now();
    let d = l.acquire("token_bucket", &*key).timeout(Duration::from_secs(1)).wait().unwrap();
    println!("{} {:?}", d.allowed(), t.elapsed());
    println!("{:?}", l.usage());
}
