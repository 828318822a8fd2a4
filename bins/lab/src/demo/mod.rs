//! `lab demo`: each system in under a minute, on one screen of 80 columns and 24 rows.

mod lms;

use anyhow::Result;
use clap::ValueEnum;

use crate::scenarios::{bfed, ldc};
use crate::session::{Carrier, Ip};
use sims::report::Report;
use sims::scenario::Context;

/// The options of `lab demo`.
#[derive(clap::Args)]
pub(crate) struct Demo {
    /// The system to show
    #[arg(value_enum, default_value_t)]
    system: System,
    /// Version of IP, of `lms`
    #[arg(long, value_enum, default_value_t)]
    ip: Ip,
    /// How LMS's requests and repairs travel, of `lms`
    #[arg(long, value_enum, default_value_t)]
    carrier: Carrier,
    #[command(flatten)]
    pub(crate) context: Context,
}

/// A system that has a demo.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum System {
    /// A file to four receivers over lossy links, without LMS routers and with them
    #[default]
    Lms,
    /// Live layers over a slow link, by plain TCP and with late data choice
    Ldc,
    /// An IP multicast session in another network, read by curl through two gateways
    Bfed,
}

impl Demo {
    /// Runs the demo in namespaces, which are prepared before.
    pub(crate) fn run(&self) -> Result<Report> {
        match self.system {
            System::Lms => lms::run(&self.context, self.ip, self.carrier),
            System::Ldc => ldc::demo::run(&self.context),
            System::Bfed => bfed::demo::run(&self.context),
        }
    }

    /// Runs the demo in the simulator, if that can show this system.
    pub(crate) fn simulated(&self) -> Option<Result<Report>> {
        let is_simple = self.ip == Ip::V4 && self.carrier == Carrier::Option;
        (self.system == System::Lms && is_simple).then(|| sims::demo::run(&self.context))
    }
}
