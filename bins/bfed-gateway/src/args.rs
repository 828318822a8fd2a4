//! The command line.

use clap::{Parser, Subcommand};
use cli::logging::LogArgs;
use cli::verbs::{self, ConfigFile, SocketArgs};

use crate::status::Show;
use crate::token::TokenVerb;

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

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Run a whole gateway: a control node, and a data node for each core
    Run(ConfigFile),
    /// Run a control node; data nodes are other processes
    Control(ConfigFile),
    /// Run data nodes, one for each core, for a control node elsewhere
    Data(ConfigFile),
    #[command(flatten)]
    Other(verbs::Verb<Show>),
    /// Create keys, and sign tokens for clients
    #[command(subcommand)]
    Token(TokenVerb),
    /// Move the sessions of a data node to others and assign no more to it
    Drain {
        /// Number of the data node
        node: u32,
        #[command(flatten)]
        at: SocketArgs,
    },
}
