//! The command line.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use cli::transfer::{Assist, TransferArgs, check_buffer, check_name};
use cli::units::{BitRate, ByteSize, Rate, duration};

use crate::parity::ParityChoice;

const AFTER_HELP: &str = "\
Examples:
  lms-send --group 239.1.2.3:5000 --receivers 8 image.iso
      eight hosts run `lms-recv --group 239.1.2.3:5000 --output DIR`; ends with code 0 when all
      eight have confirmed the digest
  lms-send --group [ff3e::1234]:5000 image.iso
      over IPv6; ff3x:: is source-specific: receivers name this host, --source ADDR; ff15:: is for any
      source on a site, and [ff15::1234%eth0]:5000 sends on eth0
  tar c folder | lms-send --group 239.1.2.3:5000 --rate 500M --receivers 2 -
      a stream; each receiver runs `lms-recv --output - ... | tar x`
  lms-send --group 239.1.2.3:5000 --assist dyram://192.0.2.1 --receivers 8 image.iso
      where no router forwards multicast: the dyram-relay at 192.0.2.1 and the relays below it carry the
      data; receivers run `lms-recv --group 239.1.2.3:5000 --source THIS_HOST --assist dyram://...
      --output DIR`, each with a relay of its own network. The group only names the session
  lms-send --group 239.1.2.3:5000 --assist dyram+multicast://192.0.2.1 --receivers 8 image.iso
      IP multicast carries the data to all receivers, relays of carriage multicast serve recovery
      beside it; receivers use dyram+multicast:// too

A sender that was stopped can be started again with the same FILE: receivers that still wait keep
what they have. With --receivers it continues at the first block that one of them lacks. With
--no-digest it cannot.

Events of --json, one object a line, on standard output; the field `event` names it:
  opened              session, name, length (null: a stream), group, source, interface, rate_bps
  warning             message
  joined              receiver, address
  started             receivers: how many have joined
  progress            bytes sent once, length, joined, complete, rate_bps, waiting_for: null, or receiver,
                      address and behind_percent of the receiver that new data or the end waits for;
                      limiting: null, or receiver, address, rate_bps (null before its first loss),
                      loss_percent and round_trip_ms of the receiver that the rate follows; once a second
  relay               address, state (attached, lost, refused): with --assist dyram
  relay_stalled       bytes: the relay's acknowledgement for all receivers below it has not advanced for
                      --timeout; new data no longer waits for it
  rate                rate_bps: the rate changed; at most once a second
  receiver_complete   receiver, address
  receiver_stalled    address, relay: with --assist dyram; the receiver does not advance, and its relay no
                      longer waits for it
  receiver_failed     receiver, address, bytes it has from the start on, reason
  sent                length, digest (BLAKE3 in hexadecimal), seconds
  end                 result (complete, sent, unconfirmed, interrupted, failed), exit_code, message,
                      joined, complete (hosts), receivers: each one that joined, with receiver, address,
                      state (receiving, complete, failed, replaced: restarted), reason and bytes; seconds,
                      data_packets, repairs_group, repairs_unicast, parity_group, parity_unicast,
                      parity_in_advance, requests_group, requests_unicast,
                      requested_packets, frame_bytes, dropped; also printed when the transfer could not
                      begin, but not after wrong usage

Exit codes:
  0    sent; with --receivers N: N hosts have confirmed, and no receiver that joined lacks anything
  1    failed: the file cannot be read, the network cannot be used
  2    wrong usage
  3    everything was sent, but fewer hosts than --receivers have confirmed, or one that joined lacks
       something; with --assist dyram and without --receivers: no receiver below the relay has
       acknowledged anything, or one of them did not advance
  74   the result could not be written to standard output, however the transfer ended
  130  interrupted by Ctrl-C or SIGTERM";

/// Send a file, or standard input, to every receiver of a multicast group, reliably
///
/// Receivers request what they miss: from the sender itself or, with --assist lms, from the nearest
/// receiver that has it, which LMS routers find, or with --assist dyram://RELAY from a tree of relays,
/// which then also carries the data by unicast. The sender needs no privileges.
#[derive(Debug, clap::Parser)]
#[command(name = "lms-send", version, after_long_help = AFTER_HELP, max_term_width = 100)]
pub(crate) struct Args {
    /// File to send; - is standard input
    pub(crate) file: PathBuf,

    #[command(flatten)]
    pub(crate) transfer: TransferArgs,

    /// This host's address to send from [default: the interface's first]
    #[arg(long, value_name = "ADDR", value_parser = cli::address::host)]
    pub(crate) source: Option<IpAddr>,

    /// Send at this rate instead of one that shares the network with other traffic: 100M, 2.5G, or "unlimited"; in
    /// bit/s on the wire, counted as Ethernet frames
    ///
    /// Without this option congestion control (TFMCC, RFC 4654) finds the rate: what a TCP would get on the path of
    /// the receiver that has the least. A sender with a set rate makes TCP yield: use one in networks of your own. A
    /// rate that is set falls, to an eighth at most, while receivers miss more than a quarter of the packets.
    /// "unlimited" starts at 500M and speeds up until a receiver loses more than 2 % of the packets, even if other
    /// receivers repair them; then it slows down, to 64k at least.
    #[arg(long, value_name = "RATE")]
    pub(crate) rate: Option<Rate>,

    /// Give up a receiver that holds the rate below this for five seconds: it no longer slows down the others
    ///
    /// It is named, is told why, and counts as one that lacks something. `progress` of --json, and the words beside
    /// the progress bar, name the receiver that limits the rate. Not through relays (--assist dyram://): a relay
    /// answers for all receivers below it.
    #[arg(long, value_name = "RATE", conflicts_with = "rate")]
    pub(crate) min_rate: Option<BitRate>,

    /// Repair with parity, and send so much of it after each block before anyone requests it: a share like 5%, "auto",
    /// 0% to send it on request only, or "off"
    ///
    /// A parity packet replaces any packet of its block (64 KiB), so that one repairs different losses of different
    /// receivers: with eight receivers that each lose 1 %, repairs take half of what they take with "off". "auto" sends
    /// as much in advance as receivers have requested of most blocks. A single receiver (--receivers 1, one joined) gets
    /// the packets that it lacks; so do receivers through relays, but for what a share sends in advance. Receivers of
    /// releases before parity refuse a session with it: then use "off".
    #[arg(long, value_name = "SHARE", default_value = "auto")]
    pub(crate) parity: ParityChoice,

    /// Number of hosts that receive: wait for them, keep to their pace, end when all have confirmed
    ///
    /// Data begins when N hosts have joined. Every receiver that joins, expected or not, sets the pace, and
    /// the sender waits for it until it has confirmed or --timeout has passed. The transfer succeeds when at
    /// least N hosts have confirmed and no receiver that joined lacks anything. Receivers at one address count
    /// as one host.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) receivers: Option<u32>,

    /// With --receivers: longest wait for all of them; then data begins without the rest
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration)]
    pub(crate) connect_timeout: Duration,

    /// After everything was sent: answer requests until none has come for this time; with --receivers also
    /// wait for each that has joined, until --timeout
    #[arg(long, value_name = "TIME", default_value = "3s", value_parser = duration)]
    pub(crate) linger: Duration,

    /// With --receivers: give up a receiver that is silent for this time, or lacks something and does not
    /// advance; with --assist dyram: fail when no relay answers for this time
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration)]
    pub(crate) timeout: Duration,

    /// Name under which receivers store the content [default: the name of FILE]
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,

    /// Do not read FILE once for its digest before the start: data begins sooner, but a restarted sender
    /// cannot resume, and receivers that already have FILE do not notice
    #[arg(long)]
    pub(crate) no_digest: bool,

    /// Largest IP packet on the way to any receiver, from 576 with IPv4, from 1280 with IPv6 [default: the interface's,
    /// at most 1500]
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u16).range(576..))]
    pub(crate) mtu: Option<u16>,

    /// Hand each datagram to the kernel on its own: for paths that lose segmentation batches
    ///
    /// The sender does so without this option after a few seconds in which the loss shows it.
    #[arg(long)]
    pub(crate) no_gso: bool,

    /// Bytes of a stream to keep for repairs
    #[arg(long, value_name = "SIZE", default_value = "64MiB")]
    pub(crate) buffer: ByteSize,
}

impl Args {
    /// Refuses combinations that cannot work.
    pub(crate) fn check(&self) -> Result<(), String> {
        if self.is_stream() && self.no_digest {
            return Err("--no-digest is about a FILE: a stream always starts at once".into());
        }
        let assist = self.transfer.assist()?;
        self.transfer.check_version("--source", self.source)?;
        if let Some(mtu) = self.mtu.filter(|mtu| *mtu < 1280)
            && self.transfer.group.is_ipv6()
        {
            return Err(format!(
                "--mtu {mtu}: every path of IPv6 carries packets of 1280 bytes; give 1280 or more"
            ));
        }
        if self.min_rate.is_some() && matches!(assist, Assist::Dyram(..)) {
            return Err("no --min-rate through relays: a relay answers for all receivers below it, so that none can be given up alone".into());
        }
        check_buffer(self.buffer)?;
        check_name(self.name.as_deref())
    }

    pub(crate) fn is_stream(&self) -> bool {
        self.file.as_os_str() == "-"
    }

    /// Returns what messages call the content.
    pub(crate) fn shown(&self) -> String {
        if self.is_stream() {
            return "stream".to_owned();
        }
        let name = self.file.file_name().unwrap_or(self.file.as_os_str());
        name.to_string_lossy().into_owned()
    }
}
