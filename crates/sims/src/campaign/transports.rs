//! The transports of the campaign.

use anyhow::Result;

use super::outcome::Outcome;
use super::{bfed, ldc, ltp, xm};
use crate::scenario::{chosen, print_progress};

/// A transport of the campaign.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Transport {
    /// LTP alone.
    Ltp,
    /// LTP with LMS in the routers.
    Lms,
    /// LTP through DyRAM relays.
    Dyram,
    /// TCP-XM.
    Xm,
    /// Broadcast Federation.
    Bfed,
    /// The packet ring of late data choice.
    Ldc,
}

/// What `--transport` takes.
pub(super) const NAMES: [&str; 7] = ["all", "ltp", "lms", "dyram", "xm", "bfed", "ldc"];

/// How a seed is run.
#[derive(Default)]
pub(super) struct Watch {
    /// The packets go there, as pcap.
    pub(super) trace: Option<std::path::PathBuf>,
    /// Print the network and each receiver's result on standard error.
    pub(super) verbose: bool,
}

impl Transport {
    pub(super) const ALL: [Self; 6] = [
        Self::Ltp,
        Self::Lms,
        Self::Dyram,
        Self::Xm,
        Self::Bfed,
        Self::Ldc,
    ];

    /// As typed after `--transport`.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Ltp => "ltp",
            Self::Lms => "lms",
            Self::Dyram => "dyram",
            Self::Xm => "xm",
            Self::Bfed => "bfed",
            Self::Ldc => "ldc",
        }
    }

    /// For people.
    pub(super) const fn title(self) -> &'static str {
        match self {
            Self::Ltp => "LTP alone",
            Self::Lms => "LTP with LMS",
            Self::Dyram => "LTP through DyRAM",
            Self::Xm => "TCP-XM",
            Self::Bfed => "Broadcast Federation",
            Self::Ldc => "late data choice",
        }
    }

    /// Those that these words select; `all` selects all.
    pub(super) fn chosen(words: &[String]) -> Vec<Self> {
        let names = chosen(words, &NAMES);
        let all = Self::ALL.into_iter();
        all.filter(|one| names.contains(&one.name())).collect()
    }

    /// Runs one seed.
    ///
    /// # Errors
    /// When the trace cannot be written.
    pub(super) fn run(self, seed: u64, watch: &Watch) -> Result<Outcome> {
        match self {
            Self::Ltp => ltp::run(seed, false, watch),
            Self::Lms => ltp::run(seed, true, watch),
            Self::Dyram => ltp::run_relayed(seed, watch),
            Self::Xm => xm::run(seed, watch),
            Self::Bfed => bfed::run(seed, watch),
            Self::Ldc => ldc::run(seed, watch),
        }
    }
}

impl Watch {
    /// Starts the trace, where one is wanted, and shows the network.
    ///
    /// # Errors
    /// When the file cannot be made.
    pub(super) fn begin<N: netsim::Node>(
        &self,
        sim: &mut netsim::Sim<N>,
        profile: &super::profile::NetworkProfile,
        choices: &str,
    ) -> Result<()> {
        if self.verbose {
            print_progress(format!("{}\n{choices}", profile.describe()));
        }
        if let Some(path) = &self.trace {
            let file = std::io::BufWriter::new(std::fs::File::create(path)?);
            sim.capture(netsim::Filter::Sent, file)?;
        }
        Ok(())
    }

    /// Ends the trace.
    ///
    /// # Errors
    /// When it could not be written.
    pub(super) fn end<N: netsim::Node>(&self, sim: &mut netsim::Sim<N>) -> Result<()> {
        Ok(sim.finish_captures()?)
    }

    /// Prints a line when a seed is replayed.
    pub(super) fn print(&self, line: impl FnOnce() -> String) {
        if self.verbose {
            print_progress(line());
        }
    }
}
