//! What can be typed, and what `--help` says about it.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use tidegate::{Algorithm, Builder, Document, Limiter, Rule};

const EXAMPLES: &str = "\
Examples:
  tidegate demo                                     what exact means, in a second
  tidegate replay access.log --limit 20/m           what a limit would have done
  tidegate peek api alice --limits 100/m --url redis://127.0.0.1
  tidegate doctor --url redis://127.0.0.1           what is wrong with the servers

`tidegate COMMAND --help` has more of them.";

/// Exact rate limits: see what they do, try them on your own log, look at one key.
#[derive(Debug, Parser)]
#[command(name = "tidegate", version, after_help = EXAMPLES, max_term_width = 80)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Show exact limits at work, and a burst at a window's boundary
    Demo(Demo),
    /// Replay an access log: what would a limit have allowed and denied?
    Replay(Replay),
    /// Decide one request now, and charge it if it is allowed
    Check(Ask),
    /// Tell what a check would say; charge nothing
    Peek(Ask),
    /// Show how much of each limit a key has used
    Show(Target),
    /// Forget what a key has used of a rule
    Reset(Target),
    /// Look at the servers: what is wrong with them, and what to do
    Doctor(Doctor),
}

const DEMO_HELP: &str = "\
Without --url everything happens in this process: the requests of part 1 are
really made, part 2 runs on simulated time. With --url both are made on the
server, under keys that begin with `tidegate:demo:` and a random word; they
expire by themselves within a minute, and nothing else is touched.

Examples:
  tidegate demo
  tidegate demo --url redis://127.0.0.1:6379
  tidegate demo --url redis+cluster://10.0.0.1:7000,10.0.0.2:7000

Exit codes: 0 done; 1 the server could not be reached, or failed; 2 the command
line cannot be meant.";

#[derive(Debug, Args)]
#[command(after_help = DEMO_HELP)]
pub(crate) struct Demo {
    /// Run on this server: redis://, rediss://, redis+unix://, redis+cluster://, redis+sentinel://
    #[arg(long)]
    pub(crate) url: Option<String>,
}

const REPLAY_HELP: &str = "\
LOG is an access log of nginx or Apache in the common or combined format, plain
or gzip. Its lines are put in the order of their own times first: servers write
a line when a request ends. Lines that cannot be read are counted and left out.

Examples:
  tidegate replay access.log --limit 20/m
  tidegate replay access.log.2.gz --limit '100/m; 1000/h' --by user
  tidegate replay access.log --limit '5/s burst 20' --algorithm token_bucket
  zstdcat access.log.zst | tidegate replay - --limit 20/m --json

Exit codes: 0 done; 2 the command line cannot be meant, or the log cannot be
read.";

#[derive(Debug, Args)]
#[command(after_help = REPLAY_HELP)]
pub(crate) struct Replay {
    /// The log; `-` for standard input
    pub(crate) log: PathBuf,
    /// The limit to try: 20/m, '100/m; 1000/h', '5/s burst 20' (only
    /// token_bucket has a burst, only sliding_window a precision)
    #[arg(long, value_name = "RATE", value_parser = rate)]
    pub(crate) limit: String,
    /// By this algorithm instead of all, whatever RATE names; more than one
    /// as a,b or by repeating it
    #[arg(long = "algorithm", value_name = "NAME", value_delimiter = ',', value_parser = Algorithm::parse)]
    pub(crate) algorithms: Vec<Algorithm>,
    /// Limit each address, each user who logged in, or each path without its
    /// query; requests without a user or a path are left out
    #[arg(long, value_enum, default_value_t = By::Ip)]
    pub(crate) by: By,
    /// Print one line of JSON instead
    #[arg(long)]
    pub(crate) json: bool,
}

// What a log line is limited by. Plain comments: documented values would spread `--help` over two screens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum By {
    Ip,
    User,
    Path,
}

/// A rate is judged before any log is read.
fn rate(text: &str) -> tidegate::Result<String> {
    Rule::parse("replay", text).map(|_| text.to_owned())
}

fn cost(text: &str) -> Result<u64, &'static str> {
    text.parse()
        .ok()
        .filter(|cost| *cost > 0)
        .ok_or("write a whole number of units, 1 or more; to look without a charge, use peek")
}

const ASK_HELP: &str = "\
Examples:
  tidegate check api alice --limits 100/m --url redis://127.0.0.1:6379
  tidegate peek api alice --cost 5 --config tidegate.toml
  tidegate check api tenant-7 alice --config tidegate.toml --json

Exit codes: 0 allowed; 1 refused; 2 the command line or the configuration
cannot be meant; 3 the store failed.";

/// A question about one request.
#[derive(Debug, Args)]
#[command(after_help = ASK_HELP)]
pub(crate) struct Ask {
    #[command(flatten)]
    pub(crate) target: Target,
    /// The units that the request takes
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = cost, allow_negative_numbers = true)]
    pub(crate) cost: u64,
}

const TARGET_HELP: &str = "\
Examples:
  tidegate show api alice --limits '100/m; 1000/h' --url redis://127.0.0.1:6379
  tidegate reset api alice --config tidegate.toml
  TIDEGATE_URL=redis://127.0.0.1 tidegate show api alice --limits 100/m --json

Exit codes: 0 done; 2 the command line or the configuration cannot be meant;
3 the store failed.";

/// A rule and a key on a server.
#[derive(Debug, Args)]
#[command(after_help = TARGET_HELP)]
pub(crate) struct Target {
    /// The rule's name
    pub(crate) rule: String,
    /// Who is limited; several words are the parts of one key
    #[arg(required = true)]
    pub(crate) key: Vec<OsString>,
    /// The rule's limits, such as '100/m; 1000/h'; win over the configuration's
    #[arg(long, value_name = "RATE")]
    pub(crate) limits: Option<String>,
    #[command(flatten)]
    pub(crate) store: Store,
}

/// Where state lives, and how the answer is told.
#[derive(Debug, Args)]
pub(crate) struct Store {
    /// Where the state lives; wins over what the configuration says
    #[arg(long, env = "TIDEGATE_URL", hide_env_values = true)]
    pub(crate) url: Option<String>,
    /// The document with the rules and the store: .toml, .json, .yaml
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// What the stored keys begin with [default: the document's, or tidegate]
    #[arg(long)]
    pub(crate) prefix: Option<String>,
    /// Print one line of JSON instead
    #[arg(long)]
    pub(crate) json: bool,
}

impl Store {
    /// A limiter in the making, with the document's rules if there is one.
    pub(crate) fn builder(&self) -> tidegate::Result<Builder> {
        let mut builder = Limiter::builder();
        if let Some(file) = &self.config {
            builder = builder.document(&Document::read(file)?);
        }
        if let Some(prefix) = &self.prefix {
            builder = builder.prefix(prefix);
        }
        if let Some(url) = self.url.as_deref().filter(|url| !url.is_empty()) {
            builder = builder.url(url);
        }
        Ok(builder)
    }
}

const DOCTOR_HELP: &str = "\
Looks at every node: the login, what its user may do, version, memory policy,
clocks, round trip, whether checks are decided, and whether a cluster is whole.
It takes 5 seconds at the most. It writes under the prefix, for a random name:
each primary decides some checks, and a key that ends in `:doctor` shows what
the user is allowed. All of it is deleted at once; where DEL is denied, that
key lasts for 10 seconds, and what the checks wrote for half a minute at most.

Examples:
  tidegate doctor --url redis://127.0.0.1:6379
  tidegate doctor --config tidegate.toml --json
  TIDEGATE_URL=redis+cluster://10.0.0.1:7000,10.0.0.2:7000 tidegate doctor

Exit codes: 0 no problem, warnings at the most; 1 problems; 2 the command line
or the configuration cannot be meant.";

#[derive(Debug, Args)]
#[command(after_help = DOCTOR_HELP)]
pub(crate) struct Doctor {
    #[command(flatten)]
    pub(crate) store: Store,
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_definitions_agree_with_each_other() {
        use clap::CommandFactory as _;
        super::Arguments::command().debug_assert();
    }
}
