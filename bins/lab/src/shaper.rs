//! Two ways to shape the links of a network.

/// What shapes the links of scenarios that run in either kind of network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Shaper {
    /// Delay and loss by the lab's link emulator
    #[default]
    Lab,
    /// Offloads as the system has them, loss by nftables, HTB on the sender's interface
    System,
}
