//! The command line.

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::Duration;

use cli::assist::Assist;
use cli::multicast::GroupArgs;
use cli::units::{ByteSize, Rate, duration};

const AFTER_HELP: &str = "\
Examples:
  lms-send --group 239.1.2.3:5000 --receivers 8 image.iso
      eight hosts run `lms-recv --group 239.1.2.3:5000 --output DIR`; ends with code 0 when all
      eight have confirmed the digest
  tar c folder | lms-send --group 239.1.2.3:5000 --rate 500M --receivers 2 -
      a stream; each receiver runs `lms-recv --output - ... | tar x`
  lms-send --group 239.1.2.3:5000 --assist dyram://192.0.2.1 --receivers 8 image.iso
      where no router speaks multicast: dyram-relay at 192.0.2.1 and those below it carry the
      data; receivers run `lms-recv --group 239.1.2.3:5000 --source THIS_HOST --assist dyram://...
      --output DIR`, each with a relay near by. The group only names the session
  lms-send --group 239.1.2.3:5000 --assist dyram+multicast://192.0.2.1 --receivers 8 image.iso
      IP multicast carries the data to all, relays of carriage multicast serve recovery
      beside it; receivers say dyram+multicast:// too

A sender that was stopped can be started again with the same FILE: receivers that still wait keep
what they have. Only --start-at-once gives this up.

Events of --json, one object a line, on standard output; the field `event` names it:
  opened              session, name, length (null: a stream), group, source, interface, rate_bps
  joined              receiver, address
  started             receivers: how many have joined
  progress            bytes sent once, length, joined, complete, rate_bps; every second
  relay               address, state (attached, lost, refused): with --assist dyram
  rate                rate_bps: slowed down or sped up, because receivers miss packets or do not
  receiver_complete   receiver, address
  receiver_failed     receiver, address, bytes it has from the start on, reason
  sent                length, digest (BLAKE3 in hexadecimal), seconds
  end                 result (complete, sent, unconfirmed, interrupted, failed), exit_code, message,
                      joined, complete, seconds, data_packets, repairs_group, repairs_unicast,
                      requests_group, requests_unicast, requested_packets, frame_bytes, dropped;
                      comes also when the transfer could not begin, but not after wrong usage

Exit codes:
  0    sent; with --receivers: every receiver has confirmed that it has everything
  1    failed: the file cannot be read, the network cannot be used
  2    wrong usage
  3    everything was sent, but not all of the --receivers have confirmed; with --assist dyram and
       without --receivers: nobody below the relay has acknowledged any of it
  130  interrupted by Ctrl-C or SIGTERM";

/// Sends a file, or standard input, to every receiver of a multicast group, reliably.
///
/// Receivers ask for what they miss: the sender itself or, with --assist lms, the nearest receiver
/// that has it, found by LMS routers, or with --assist dyram://RELAY a tree of relays, which then also
/// carries the data by unicast. The sender needs no privileges.
#[derive(Debug, clap::Parser)]
#[command(name = "lms-send", version, after_long_help = AFTER_HELP, max_term_width = 100)]
pub(crate) struct Args {
    /// File to send; - is standard input
    pub(crate) file: PathBuf,

    #[command(flatten)]
    pub(crate) group: GroupArgs,

    /// This host's address to send from [default: the interface's first]
    #[arg(long, value_name = "ADDR")]
    pub(crate) source: Option<Ipv4Addr>,

    /// Most bits a second on the wire, counted as Ethernet frames: 100M, 2.5G, or "unlimited": as
    /// fast as this host and the slowest receiver can
    ///
    /// When receivers miss more than a quarter of the packets the rate falls, at most to an eighth;
    /// "unlimited" falls when they miss more than 4 %, at most to 20M.
    #[arg(long, value_name = "RATE", default_value = "100M")]
    pub(crate) rate: Rate,

    /// Who helps with repairs: none, lms (routers), dyram://RELAY[:PORT] (relays, which carry the data
    /// too; several, with commas or by repeating it: the next one when one is silent), or
    /// dyram+multicast://RELAY (the same relays beside IP multicast, which carries the data)
    #[arg(long, value_name = "HELP", default_value = "none")]
    pub(crate) assist: Vec<Assist>,

    /// How many receivers there are: wait for them, keep to their pace, end when all have
    /// confirmed
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) receivers: Option<u32>,

    /// With --receivers: how long to wait for all of them before starting without the rest
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration)]
    pub(crate) start_wait: Duration,

    /// Answer requests for so long after the last one, once everything was sent; with --receivers
    /// those that have joined are waited for beyond that, each until --timeout
    #[arg(long, value_name = "TIME", default_value = "3s", value_parser = duration)]
    pub(crate) linger: Duration,

    /// With --receivers: give up one that is silent for so long; with --assist dyram: give up when no
    /// relay answers for so long
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration)]
    pub(crate) timeout: Duration,

    /// Name that receivers store it under [default: the name of FILE]
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,

    /// Start without reading FILE once for its digest: sooner, but a restarted sender cannot
    /// resume, and receivers that already have FILE do not notice
    #[arg(long)]
    pub(crate) start_at_once: bool,

    /// Largest IP packet on the way to any receiver [default: the interface's, at most 1500]
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u16).range(576..))]
    pub(crate) mtu: Option<u16>,

    /// How much of a stream is kept for repairs
    #[arg(long, value_name = "SIZE", default_value = "64MiB")]
    pub(crate) buffer: ByteSize,

    /// Print one JSON event a line (they are listed below)
    #[arg(long)]
    pub(crate) json: bool,

    /// No progress bar
    #[arg(long, short)]
    pub(crate) quiet: bool,

    #[command(flatten)]
    pub(crate) log: cli::logging::LogArgs,
}

impl Args {
    /// Combinations that cannot work.
    pub(crate) fn check(&self) -> Result<(), String> {
        if self.is_stream() && self.start_at_once {
            return Err("--start-at-once is about a FILE: a stream always starts at once".into());
        }
        self.assist()?;
        cli::args::check_buffer(self.buffer)?;
        cli::args::check_name(self.name.as_deref())
    }

    /// Who helps; what several `--assist` say together.
    pub(crate) fn assist(&self) -> Result<Assist, String> {
        Assist::together(&self.assist)
    }

    pub(crate) fn is_stream(&self) -> bool {
        self.file.as_os_str() == "-"
    }
}
