//! The command line.

use std::path::PathBuf;

use clap::{Parser, Subcommand};
use cli::logging::LogArgs;
use cli::verbs;
use daemon_kit::client::default_socket;

use crate::config::DEFAULT_SOCKET;
use crate::status::Show;

/// Connect broadcast networks: clients in one network receive sessions of another
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
  SIGHUP           reload the configuration; a wrong one is rejected and the old one stays
  SIGUSR1          drain the data nodes of this process: their sessions move to others
  SIGUSR2          stop for a restart: peers and data nodes wait for the next start
  SIGTERM, SIGINT  notify peers and clients, then stop with code 0, after timers.shutdown at the latest
  a second one     stop at once with code 1

Exit codes:
  0    success; stopped by SIGTERM, SIGINT or SIGUSR2
  1    failed
  2    wrong usage: the command line or the configuration
  74   the result could not be written to standard output, whatever else happened

Getting started: `bfed-gateway check --config gateway.toml`, `bfed-gateway run --config gateway.toml`, then
`bfed-gateway status peers`.";

#[derive(Debug, clap::Args)]
pub(crate) struct File {
    /// Path of the configuration file
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
    /// Run a control node; data nodes are other processes
    Control(File),
    /// Run data nodes, one for each core, for a control node elsewhere
    Data(File),
    /// Validate a configuration and report every error
    Check(verbs::CheckArgs),
    /// Show the state of a running gateway
    Status {
        /// Document to show
        #[arg(value_enum, default_value = "overview")]
        what: Show,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        at: Socket,
    },
    /// Follow the tables and rates of a running gateway until q is pressed
    #[cfg(feature = "top")]
    Top {
        /// Print the tables once as text, with rates over one second; needs no terminal
        #[arg(long)]
        once: bool,
        #[command(flatten)]
        at: Socket,
    },
    /// Move the sessions of a data node to others and assign no more to it
    Drain {
        /// Number of the data node
        node: u32,
        #[command(flatten)]
        at: Socket,
    },
}
