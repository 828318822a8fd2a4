//! The command line.

use clap::{Parser, Subcommand};
use cli::logging::LogArgs;
use cli::verbs::{self, ConfigFile};

use crate::status::Show;

/// Relay reliable multicast over UDP; nearby receivers repair losses
#[derive(Debug, Parser)]
#[command(name = "dyram-relay", version, after_help = AFTER, arg_required_else_help = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) verb: Verb,
    #[command(flatten)]
    pub(crate) log: LogArgs,
}

const AFTER: &str = "\
Signals of a running relay:
  SIGHUP           reload the configuration; an invalid one is rejected, the old one stays
  SIGUSR1          drain: send children, then the source, to their next relays, accept none,
                   keep running
  SIGTERM, SIGINT  drain, then exit with code 0; after timers.drain at the latest
  a second one     exit at once, with code 1

Exit codes:
  0    success; `run` was ended by SIGTERM or SIGINT
  1    failed
  2    invalid command line or configuration
  74   the result could not be written to standard output

Example: the relay next to the source needs an identifier only,
  printf '[relay]\\nid = \"192.0.2.1\"\\n' > relay.toml
the others also parents = [\"192.0.2.1:4143\"], or [\"[fe80::1%eth0]:4143\"] for a link-local
address, which names the interface. Then `dyram-relay check --config relay.toml`,
`dyram-relay run --config relay.toml`, and `dyram-relay status sessions`.";

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Run the relay until a signal ends it
    Run(ConfigFile),
    #[command(flatten)]
    Other(verbs::Verb<Show>),
}
