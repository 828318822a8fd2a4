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
what they have. With --receivers it goes on at the first block that one of them lacks. Only
--start-at-once gives this up.

Events of --json, one object a line, on standard output; the field `event` names it:
  opened              session, name, length (null: a stream), group, source, interface, rate_bps
  joined              receiver, address
  started             receivers: how many have joined
  progress            bytes sent once, length, joined, complete, rate_bps, waiting_for: null, or receiver,
                      address and behind_percent of the receiver that new data or the end waits for;
                      every second
  relay               address, state (attached, lost, refused): with --assist dyram
  relay_stalled       bytes: what the relay acknowledges for all below it has stayed there for --timeout;
                      new data does not wait for it any more
  rate                rate_bps: slowed down or sped up, because receivers miss packets or do not; at
                      most once a second
  receiver_complete   receiver, address
  receiver_stalled    address, relay: with --assist dyram; it does not advance, and its relay no longer
                      waits for it
  receiver_failed     receiver, address, bytes it has from the start on, reason
  sent                length, digest (BLAKE3 in hexadecimal), seconds
  end                 result (complete, sent, unconfirmed, interrupted, failed), exit_code, message,
                      joined, complete (hosts), receivers: each one that joined, with receiver, address,
                      state (receiving, complete, failed, replaced: started again), reason and bytes; seconds, data_packets, repairs_group, repairs_unicast,
                      requests_group, requests_unicast, requested_packets, frame_bytes, dropped;
                      comes also when the transfer could not begin, but not after wrong usage

Exit codes:
  0    sent; with --receivers N: N hosts have confirmed, and no receiver that joined lacks anything
  1    failed: the file cannot be read, the network cannot be used
  2    wrong usage
  3    everything was sent, but fewer hosts than --receivers have confirmed, or one that joined lacks
       something; with --assist dyram and without --receivers: nobody below the relay has acknowledged
       any of it, or something below it stood still
  74   the result could not be written to standard output, whatever else happened
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
    /// When receivers miss more than a quarter of the packets the rate falls, at most to an eighth.
    /// "unlimited" starts at 500M, speeds up until a receiver loses more than 2 % of what is sent, whoever
    /// repairs that, and slows down then, at most to 64k. It is for networks that carry nothing else
    /// which matters: other traffic, TCP above all, yields to it at less loss. Elsewhere set a rate.
    #[arg(long, value_name = "RATE", default_value = "100M")]
    pub(crate) rate: Rate,

    /// Who helps with repairs: none, lms (routers), dyram://RELAY[:PORT] (relays, which carry the data
    /// too; several, with commas or by repeating it: the next one when one is silent), or
    /// dyram+multicast://RELAY (the same relays beside IP multicast, which carries the data)
    #[arg(long, value_name = "HELP", default_value = "none")]
    pub(crate) assist: Vec<Assist>,

    /// How many hosts receive: wait for them, keep to their pace, end when all have confirmed
    ///
    /// Data begins when N hosts have joined. Every receiver that joins, expected or not, sets the pace and is
    /// waited for until it has confirmed or --timeout gives it up. The result is success when at least N
    /// hosts have confirmed and no receiver that joined lacks anything. Receivers at one address count as one
    /// host.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) receivers: Option<u32>,

    /// With --receivers: how long to wait for all of them before starting without the rest
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration)]
    pub(crate) start_wait: Duration,

    /// Answer requests for so long after the last one, once everything was sent; with --receivers
    /// those that have joined are waited for beyond that, each until --timeout
    #[arg(long, value_name = "TIME", default_value = "3s", value_parser = duration)]
    pub(crate) linger: Duration,

    /// With --receivers: give up one that is silent for so long, or that does not advance
    /// although it lacks something; with --assist dyram: give up when no relay answers for so long
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

    /// Hand each datagram to the kernel by itself: for paths on which segmentation batches are lost
    ///
    /// Where the loss shows that it is so, the sender does this by itself after a few seconds.
    #[arg(long)]
    pub(crate) no_gso: bool,

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
        cli::args::check_name(self.name.as_deref(), ltp_linux::name::is_plain)
    }

    /// Who helps; what several `--assist` say together.
    pub(crate) fn assist(&self) -> Result<Assist, String> {
        Assist::together(&self.assist)
    }

    pub(crate) fn is_stream(&self) -> bool {
        self.file.as_os_str() == "-"
    }
}
