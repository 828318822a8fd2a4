//! The command line.

use std::path::PathBuf;

use clap::{Parser, Subcommand};
use cli::logging::LogArgs;
use daemon_kit::client::default_socket;

use crate::config::DEFAULT_SOCKET;
use crate::status::Show;

/// Relays reliable multicast over plain UDP, and has losses repaired by receivers near by
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
  SIGHUP           reads the configuration again; a wrong one is rejected, the old one stays
  SIGUSR1          drains: sends children, then the source, to their next relays, takes none in,
                   keeps running
  SIGTERM, SIGINT  drains, then ends with code 0; after timers.drain at the latest
  a second one     ends at once, with code 1

Exit codes:
  0    all well; `run` was ended by SIGTERM or SIGINT
  1    failed
  2    wrong usage: the command line or the configuration
  74   the result could not be written to standard output, whatever else happened

A start: the relay next to the source needs an identifier alone,
  printf '[relay]\\nid = \"192.0.2.1\"\\n' > relay.toml
the others also parents = [\"192.0.2.1:4143\"]. Then `dyram-relay check --config relay.toml`,
`dyram-relay run --config relay.toml`, and look with `dyram-relay status sessions`.";

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Relays until it is told to end
    Run {
        /// The configuration file
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
    },
    /// Says what is wrong with a configuration, and where, and what to write instead
    Check {
        /// The configuration file
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
        /// The dry run: also what does not fit this host, such as users, interfaces, addresses
        #[arg(long)]
        here: bool,
    },
    /// Follows a running relay: its tables, with rates, until q is pressed
    #[cfg(feature = "top")]
    Top {
        /// Prints the tables once, as text, with rates over one second; needs no terminal
        #[arg(long)]
        once: bool,
        /// Path of the status socket (daemon.socket in the configuration)
        #[arg(long, value_name = "PATH", default_value_os_t = default_socket(DEFAULT_SOCKET))]
        socket: PathBuf,
    },
    /// Shows a running relay
    Status {
        /// What to show
        #[arg(value_enum, default_value = "overview")]
        what: Show,
        /// One JSON object
        #[arg(long)]
        json: bool,
        /// Path of the status socket (daemon.socket in the configuration)
        #[arg(long, value_name = "PATH", default_value_os_t = default_socket(DEFAULT_SOCKET))]
        socket: PathBuf,
    },
}
