//! The command line.

use std::path::PathBuf;

use clap::{Parser, Subcommand, ValueEnum};
use cli::logging::LogArgs;
use daemon_kit::client::default_socket;

use crate::config::DEFAULT_SOCKET;
use crate::status::Show;

/// Forwards LMS requests to repliers and LMS repairs to subtrees, beside whatever routes multicast
/// on this host
#[derive(Debug, Parser)]
#[command(name = "lms-router", version, after_help = AFTER, arg_required_else_help = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) verb: Verb,
    #[command(flatten)]
    pub(crate) log: LogArgs,
}

const AFTER: &str = "\
Signals of a running router:
  SIGHUP           reads the configuration again; a wrong one is rejected, the old one stays
  SIGTERM, SIGINT  withdraws from the replier hierarchy, cleans up and ends with code 0

Exit codes:
  0    all well; `run` was ended by SIGTERM or SIGINT
  1    failed
  2    wrong usage: the command line or the configuration
  74   the result could not be written to standard output, whatever else happened

A start: write a configuration (one line is enough: [metrics]), `lms-router check --config F`,
then `lms-router run --config F` as root, and look with `lms-router status groups`.";

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Routes until it is told to end
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
    /// Follows a running router: its tables, with rates, until q is pressed
    #[cfg(feature = "top")]
    Top {
        /// Prints the tables once, as text, with rates over one second; needs no terminal
        #[arg(long)]
        once: bool,
        /// Path of the status socket (daemon.socket in the configuration)
        #[arg(long, value_name = "PATH", default_value_os_t = default_socket(DEFAULT_SOCKET))]
        socket: PathBuf,
    },
    /// Shows a running router
    Status {
        /// What to show; an overview when not given
        what: Option<What>,
        /// One JSON object
        #[arg(long)]
        json: bool,
        /// Path of the status socket (daemon.socket in the configuration)
        #[arg(long, value_name = "PATH", default_value_os_t = default_socket(DEFAULT_SOCKET))]
        socket: PathBuf,
    },
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum What {
    /// Multicast routes and their repliers
    Groups,
    /// Interfaces, their numbers, their packets
    Interfaces,
    /// Everything that is counted
    Counters,
}

impl What {
    pub(crate) fn show(what: Option<What>) -> Show {
        match what {
            None => Show::Overview,
            Some(What::Groups) => Show::Groups,
            Some(What::Interfaces) => Show::Interfaces,
            Some(What::Counters) => Show::Counters,
        }
    }
}
