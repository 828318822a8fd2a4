//! The command line.

use std::path::PathBuf;

use clap::{Parser, Subcommand};
use cli::logging::LogArgs;
use cli::verbs::{CheckArgs, ConfigFile};
use daemon_kit::client::default_socket;

use crate::config::DEFAULT_SOCKET;
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
the others also parents = [\"192.0.2.1:4143\"]. Then `dyram-relay check --config relay.toml`,
`dyram-relay run --config relay.toml`, and `dyram-relay status sessions`.";

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Run the relay until a signal ends it
    Run(ConfigFile),
    /// Validate a configuration and report every error
    Check(CheckArgs),
    /// Follow the tables and rates of a running relay until q is pressed
    #[cfg(feature = "top")]
    Top {
        /// Print the tables once as text, with rates over one second; needs no terminal
        #[arg(long)]
        once: bool,
        /// Path of the status socket (daemon.socket in the configuration)
        #[arg(long, value_name = "PATH", default_value_os_t = default_socket(DEFAULT_SOCKET))]
        socket: PathBuf,
    },
    /// Show the state of a running relay
    Status {
        /// What to show
        #[arg(value_enum, default_value = "overview")]
        what: Show,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
        /// Path of the status socket (daemon.socket in the configuration)
        #[arg(long, value_name = "PATH", default_value_os_t = default_socket(DEFAULT_SOCKET))]
        socket: PathBuf,
    },
}
