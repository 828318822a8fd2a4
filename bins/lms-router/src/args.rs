//! The command line.

use clap::{Parser, Subcommand};
use cli::logging::LogArgs;
use cli::verbs::{self, ConfigFile};

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
    #[command(flatten)]
    Other(verbs::Verb<Show>),
}
