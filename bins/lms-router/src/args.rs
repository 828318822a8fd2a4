//! The command line.

use std::path::PathBuf;

use clap::{Parser, Subcommand, ValueEnum};
use cli::logging::LogArgs;
use cli::verbs::{CheckArgs, ConfigFile};
use daemon_kit::client::default_socket;

use crate::config::DEFAULT_SOCKET;
use crate::status::Show;

/// Forward LMS requests to repliers and LMS repairs to subtrees, beside the multicast routing of this host
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
  SIGHUP           reload the configuration; an invalid file is rejected and the old one stays
  SIGTERM, SIGINT  withdraw from the replier hierarchy, clean up and exit with code 0

Exit codes:
  0    success; `run` was stopped by SIGTERM or SIGINT
  1    failure
  2    the command line or the configuration is wrong
  74   the result could not be written to standard output

Getting started: write a configuration file (one line is enough: [metrics]), validate it with
`lms-router check --config F`, start `lms-router run --config F` as root, and see
`lms-router status groups`.";

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Run the router until a signal stops it
    Run(ConfigFile),
    /// Validate a configuration file and report every error
    Check(CheckArgs),
    /// Show the tables and rates of a running router until q is pressed
    #[cfg(feature = "top")]
    Top {
        /// Print the tables once as text, with rates over one second; needs no terminal
        #[arg(long)]
        once: bool,
        /// Path of the status socket (daemon.socket in the configuration)
        #[arg(long, value_name = "PATH", default_value_os_t = default_socket(DEFAULT_SOCKET))]
        socket: PathBuf,
    },
    /// Show the state of a running router
    Status {
        /// What to show [default: an overview]
        what: Option<What>,
        /// Print one JSON object
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
    /// Interfaces with their numbers and packet counts
    Interfaces,
    /// All counters
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
