//! The axum example as a process of its own, on a server.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use tidegate_tests::servers::Server;
use ureq::Agent;

/// Longer than any machine is slow.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) struct Service {
    process: Child,
    address: String,
    /// The document's copy.
    _dir: tempfile::TempDir,
}

impl Service {
    /// The example with its own document, but for a deadline that holds on slow machines too.
    pub(crate) fn start(server: &Server) -> Service {
        let document = Path::new(env!("CARGO_MANIFEST_DIR")).join("service.toml");
        let document = std::fs::read_to_string(document).expect("the document is there");
        let patient = document.replacen("[store]\n", "[store]\ndeadline = \"20s\"\n", 1);
        assert_ne!(patient, document, "it has a [store]");
        let dir = tempfile::tempdir().expect("a temporary folder can be made");
        let path = dir.path().join("service.toml");
        std::fs::write(&path, patient).expect("our own folder can be written to");

        let mut command = Command::new(env!("CARGO_BIN_EXE_axum"));
        command.arg(path).env("TIDEGATE_URL", server.url()).env("PORT", "0").stdout(Stdio::piped());
        let mut process = command.spawn().expect("the example starts");
        let output = process.stdout.take().expect("it is piped");
        let (said, line) = mpsc::channel();
        thread::spawn(move || said.send(BufReader::new(output).lines().next()));
        // From here on it is ended when dropped.
        let mut service = Service { process, address: String::new(), _dir: dir };
        let line = line.recv_timeout(PATIENCE).expect("it says something").expect("a line").expect("text");
        service.address = line.strip_prefix("listening on ").expect("where it listens").to_owned();
        service
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("{}{path}", self.address)
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A client with connections of its own, to which 429 is an answer like any other.
pub(crate) fn client() -> Agent {
    let config = Agent::config_builder().http_status_as_error(false).timeout_global(Some(PATIENCE)).proxy(None);
    config.build().into()
}
