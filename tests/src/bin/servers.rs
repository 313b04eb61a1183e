//! Real servers for tests in other languages, which hold this process by its standard input: `servers server` or
//! `servers cluster` prints the URL, and ends what it started when the input ends. In between a line `pause`, `resume`,
//! `kill`, `restart` or `flush` does that to the server (to every master of a cluster) and prints it when it is done;
//! `eternal` prints how many keys would stay for ever.

use std::io::{self, BufRead as _, Write as _};

use tidegate_tests::servers::{Cluster, Server, keys_without_ttl};

enum Servers {
    One(Server),
    Cluster(Cluster),
}

impl Servers {
    fn url(&self) -> String {
        match self {
            Servers::One(server) => server.url(),
            Servers::Cluster(cluster) => cluster.url(),
        }
    }

    fn masters(&self) -> Vec<&Server> {
        match self {
            Servers::One(server) => vec![server],
            Servers::Cluster(cluster) => cluster.masters(),
        }
    }

    /// Does what a line says, and tells of it.
    fn obey(&self, line: &str) -> String {
        let each = |work: fn(&Server)| self.masters().into_iter().for_each(work);
        match line {
            "pause" => each(Server::pause),
            "resume" => each(Server::resume),
            "kill" => each(Server::kill),
            "restart" => each(Server::restart),
            "flush" => each(Server::flush),
            "eternal" => {
                let eternal = |server: &Server| keys_without_ttl(&mut server.connection()).len();
                return self.masters().into_iter().map(eternal).sum::<usize>().to_string();
            }
            _ => return format!("there is no {line:?}"),
        }
        line.to_owned()
    }
}

fn main() -> io::Result<()> {
    let servers = match std::env::args().nth(1).as_deref() {
        Some("server") => Servers::One(Server::start()),
        Some("cluster") => Servers::Cluster(Cluster::start()),
        _ => return Err(io::Error::other("write `servers server` or `servers cluster`")),
    };
    let mut out = io::stdout();
    writeln!(out, "{}", servers.url())?;
    for line in io::stdin().lock().lines() {
        writeln!(out, "{}", servers.obey(&line?))?;
    }
    Ok(())
}
