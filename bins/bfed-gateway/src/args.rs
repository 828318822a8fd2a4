//! The command line.

use std::path::PathBuf;

use clap::{Parser, Subcommand};
use cli::logging::LogArgs;
use daemon_kit::client::default_socket;

use crate::config::DEFAULT_SOCKET;
use crate::status::Show;

/// Joins islands of broadcast: a viewer in one network gets a session that lives in another
#[derive(Debug, Parser)]
#[command(name = "bfed-gateway", version, after_help = AFTER, arg_required_else_help = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) verb: Verb,
    #[command(flatten)]
    pub(crate) log: LogArgs,
}

const AFTER: &str = "\
Signals of a running gateway:
  SIGHUP           reads the configuration again; a wrong one is rejected, the old one stays
  SIGUSR1          drains the data nodes of this process: their sessions move to others
  SIGUSR2          ends for a restart: peers and data nodes wait for the next start
  SIGTERM, SIGINT  tells peers and clients, then ends with code 0; after timers.shutdown at the latest
  a second one     ends at once, with code 1

Exit codes:
  0    all well; ended by SIGTERM, SIGINT or SIGUSR2
  1    failed
  2    wrong usage: the command line or the configuration
  74   the result could not be written to standard output, whatever else happened

A start: `bfed-gateway check --config gateway.toml`, `bfed-gateway run --config gateway.toml`, and look
with `bfed-gateway status peers`.";

#[derive(Debug, clap::Args)]
pub(crate) struct File {
    /// The configuration file
    #[arg(long, value_name = "FILE")]
    pub(crate) config: PathBuf,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Socket {
    /// Path of the status socket (daemon.socket in the configuration)
    #[arg(long, value_name = "PATH", default_value_os_t = default_socket(DEFAULT_SOCKET))]
    pub(crate) socket: PathBuf,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Run a whole gateway: a control node, and a data node for each core
    Run(File),
    /// Runs a control node; data nodes are other processes
    Control(File),
    /// Runs data nodes, one for each core, for a control node elsewhere
    Data(File),
    /// Says what is wrong with a configuration, and where, and what to write instead
    Check {
        #[command(flatten)]
        file: File,
        /// The dry run: also what does not fit this host, such as users, interfaces, addresses
        #[arg(long)]
        here: bool,
    },
    /// Shows a running gateway
    Status {
        /// What to show
        #[arg(value_enum, default_value = "overview")]
        what: Show,
        /// One JSON object
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        at: Socket,
    },
    /// Follows a running gateway: its tables, with rates, until q is pressed
    #[cfg(feature = "top")]
    Top {
        /// Prints the tables once, as text, with rates over one second; needs no terminal
        #[arg(long)]
        once: bool,
        #[command(flatten)]
        at: Socket,
    },
    /// Moves the sessions of a data node to others, and gives it no more
    Drain {
        /// The data node's number
        node: u32,
        #[command(flatten)]
        at: Socket,
    },
}
