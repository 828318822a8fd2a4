//! The command line.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Subcommand, ValueEnum};
use cli::units::{BitRate, ByteSize, duration};

use crate::wire::{MAX_LAYERS, MAX_PAYLOAD};

const AFTER_HELP: &str = "\
Examples:
  ldc-stream recv 5000
  ldc-stream send receiver:5000
      The test of the thesis: eight layers of 128 kbit/s for one minute. Each second, data that has
      not left is dropped, the highest layer first. The receiver reports the bytes of each layer,
      how many arrived in time, and their age
  ldc-stream send --no-ldc receiver:5000
      The same stream over plain TCP: on a slow link all layers arrive, all of them late
  ldc-stream recv --output incoming/ 5000
  ldc-stream send --layer-rate 500k receiver:5000 base.h264 better.h264 best.h264
      Layers from files, the base layer first; dropped data leaves a hole in the copy
  openssl rand -hex 32 >key; chmod 600 key             (the same key on both hosts)
  ldc-stream recv --transport quic --key-file key 5000
  ldc-stream send --transport quic --key-file key --order strict receiver:5000
      Over QUIC, with both ends authenticated and the data encrypted. Data that is dropped is given up
      even after it was sent: what the network lost of it is not sent again. The base layer goes first
  ldc-stream send --policy priority-progress --window 2s receiver:5000
      All layers at the start of each window, the base layer first, until the window ends

Without the base layer nothing can be played. Policy lowest-first keeps it while the ring has room,
policy deadline keeps it one window longer than the other layers.";

const SEND_HELP: &str = "\
Policies for data that is still in the ring when its time window ends:
  lowest-first       drop it, the highest layer first (LDC chapter 5); keep the base layer while the
                     ring has room for one more window
  naive              drop all waiting data whenever the next layer is due: the mistake of Figure 5.5
  deadline           give each message the end of its window as deadline (the base layer one window
                     later); the ring skips it then
  priority-progress  send all layers at the start of the window, the base layer first; the ring skips
                     the remainder at its end
  none               send it nevertheless; a full ring makes the sender wait

With --no-ldc, `none` [default] sends everything, and `deadline` skips a message that is already late
when it would be written.

Events of --json, one object per line, on standard output; the field `event` names it:
  started    address, layers, layer_rate_bps, window_s, policy, ldc, transport, congestion, slots
  progress   seconds, offered_bytes, and messages: pending, dropped, refused; every second
  end        result (sent, unconfirmed, receiver_left, failed, interrupted), exit_code, message,
             seconds, windows, offered_bytes, written_bytes, and messages: offered, written, dropped
             by the policy, expired, refused by a full ring, reset: given up after they were sent (over
             QUIC; the receiver may have them); written_bytes is unknown after the connection broke

Exit codes:
  0    everything was sent or dropped by the policy, and the receiver confirmed the end
  1    failed: cannot connect, or the connection broke
  2    wrong usage
  3    the receiver left before the end, or did not confirm it within --linger
  74   the result could not be written to standard output, whatever the outcome
  130  interrupted by Ctrl-C or SIGTERM";

const RECV_HELP: &str = "\
A layer of a window is complete when all its bytes have arrived, and on time when they arrived before
the end of the window plus --playout. A window can be played up to the highest layer below which all
layers are on time; `playable` is the time for which at least the base layer was on time.

The age of a message counts from the time when it was due at the sender. With --clock estimated the
fastest message has age 0, and the clocks of the hosts need not agree; with --clock shared they must.

Events of --json, one object per line, on standard output; the field `event` names it:
  waiting    address
  refused    peer, reason: a connection that did not begin with a stream; the program keeps waiting
  started    peer, layers, layer_rate_bps, window_s
  progress   seconds, bytes, playable_s, layers (bytes of each); every second
  end        result (complete, stopped: --duration has passed, cut: the stream broke off, silent:
             nothing arrived for --idle-timeout, failed, interrupted), exit_code, message, seconds
             (since the first byte), bytes, rate_bps, on_time_bytes, windows, playable_s,
             usable_layers (mean of all windows),
             layers (bytes, on_time_bytes, messages, windows_complete, windows_on_time),
             age_ms and base_age_ms (p50, p90, p99, max; null without messages), corrupt,
             out_of_order, beyond_limit (messages)

Exit codes:
  0    the stream ended, or --duration has passed
  1    failed, the stream broke off, or nothing arrived for --idle-timeout
  2    wrong usage
  74   the result could not be written to standard output, whatever the outcome
  130  interrupted by Ctrl-C or SIGTERM";

/// Stream layers over TCP, and drop on the sender data that would arrive too late
#[derive(Debug, clap::Parser)]
#[command(name = "ldc-stream", version, after_long_help = AFTER_HELP, max_term_width = 100)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) verb: Verb,
    #[command(flatten)]
    pub(crate) log: cli::logging::LogArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Send layers, generated or from files
    #[command(after_long_help = SEND_HELP)]
    Send(SendArgs),
    /// Receive layers, and report what arrived in time
    #[command(after_long_help = RECV_HELP)]
    Recv(RecvArgs),
}

#[derive(Debug, clap::Args)]
pub(crate) struct SendArgs {
    /// Address of `ldc-stream recv`
    #[arg(value_name = "HOST:PORT")]
    pub(crate) to: String,

    /// Files with one layer each, the base layer first [default: generated layers]
    #[arg(value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,

    /// Number of generated layers, including the base layer: 1 to 64 [default: 8]
    #[arg(long, value_name = "N", conflicts_with = "files", value_parser = clap::value_parser!(u8).range(1..=i64::from(MAX_LAYERS)))]
    pub(crate) layers: Option<u8>,

    /// Rate of each layer in bits per second: 500k, 2M; the thesis calls 131072 128 kbit/s
    #[arg(long, value_name = "RATE", default_value = "131072")]
    pub(crate) layer_rate: BitRate,

    /// Time window; the layers of one window belong together and are stale after it
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = duration)]
    pub(crate) window: Duration,

    /// Policy for stale data (see below) [default: lowest-first; with --no-ldc none]
    #[arg(long, value_enum)]
    pub(crate) policy: Option<Policy>,

    /// Write to the socket without a ring: data in the socket's buffer is sent, however late
    #[arg(long)]
    pub(crate) no_ldc: bool,

    /// Transport protocol
    #[arg(long, value_enum, default_value = "tcp")]
    pub(crate) transport: Transport,

    /// Key of both ends, with --transport quic: 32 random bytes, or PEM with this host's certificate,
    /// its private key, and the authority's certificate last
    #[arg(long, value_name = "FILE", required_if_eq("transport", "quic"))]
    pub(crate) key_file: Option<PathBuf>,

    /// Order in which waiting data leaves; `strict` and `weighted` take at most 8 layers
    #[arg(long, value_enum, default_value = "sent")]
    pub(crate) order: Order,

    /// With --transport quic, send all layers but the base layer as datagrams: lost ones are not sent again
    #[arg(long)]
    pub(crate) datagrams: bool,

    /// Length of the stream [default: 60s; files to their end]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) duration: Option<Duration>,

    /// Maximum size of a message, which is dropped or sent as a whole
    #[arg(long, value_name = "SIZE", default_value = "1400")]
    pub(crate) message: ByteSize,

    /// Slots of the ring, one per message [default: eight windows]
    #[arg(long, value_name = "N", conflicts_with = "no_ldc", value_parser = clap::value_parser!(u32).range(1..=i64::from(1 << 20)))]
    pub(crate) slots: Option<u32>,

    /// Limit of unsent bytes in the socket [default: follows the rate, at least three segments;
    /// with --no-ldc the system's, usually no limit]
    #[arg(long, value_name = "SIZE")]
    pub(crate) unsent: Option<ByteSize>,

    /// Congestion control, one of /proc/sys/net/ipv4/tcp_available_congestion_control; with
    /// --transport quic reno, cubic or bbr [default: the system's; cubic]
    #[arg(long, value_name = "NAME")]
    pub(crate) congestion: Option<String>,

    /// Disable Nagle's algorithm (TCP_NODELAY): less delay on an idle link, smaller packets on a busy one
    #[arg(long)]
    pub(crate) nodelay: bool,

    /// Time allowed after the last window for remaining data and the receiver's confirmation
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration)]
    pub(crate) linger: Duration,

    /// Print one JSON event per line (listed below)
    #[arg(long)]
    pub(crate) json: bool,

    /// Show no progress bar
    #[arg(long, short)]
    pub(crate) quiet: bool,
}

/// What carries the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Transport {
    /// TCP: neither encrypted nor authenticated
    Tcp,
    /// QUIC: a stream per message, both ends authenticated by --key-file
    Quic,
}

impl Transport {
    /// Returns the name used on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Transport::Tcp => "tcp",
            Transport::Quic => "quic",
        }
    }
}

/// Order in which waiting data leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Order {
    /// The order of sending
    Sent,
    /// A layer only while no lower layer waits
    Strict,
    /// All layers share the link; of n layers the base layer gets n shares, the next n - 1, and so on
    Weighted,
}

/// Treatment of data whose window has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Policy {
    /// Drop it at the end of the window, the highest layer first
    LowestFirst,
    /// Drop all waiting data whenever the next layer is due
    Naive,
    /// Give each message a deadline
    Deadline,
    /// Send all layers at the start of the window, the base layer first
    PriorityProgress,
    /// Send it nevertheless
    None,
}

impl Policy {
    /// Returns the name used on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Policy::LowestFirst => "lowest-first",
            Policy::Naive => "naive",
            Policy::Deadline => "deadline",
            Policy::PriorityProgress => "priority-progress",
            Policy::None => "none",
        }
    }
}

#[derive(Debug, clap::Args)]
pub(crate) struct RecvArgs {
    /// Port, or address and port, to listen on; port 0 selects a free port
    #[arg(value_name = "[ADDR:]PORT", value_parser = listen)]
    pub(crate) listen: SocketAddr,

    /// Transport protocol
    #[arg(long, value_enum, default_value = "tcp")]
    pub(crate) transport: Transport,

    /// Key of both ends, with --transport quic: 32 random bytes, or PEM with this host's certificate,
    /// its private key, and the authority's certificate last
    #[arg(long, value_name = "FILE", required_if_eq("transport", "quic"))]
    pub(crate) key_file: Option<PathBuf>,

    /// Write the layers to this folder, as layer-0, layer-1 and so on; existing files are replaced
    #[arg(long, short, value_name = "DIR")]
    pub(crate) output: Option<PathBuf>,

    /// With --output, maximum size of a file
    #[arg(long, value_name = "SIZE", default_value = "1GiB")]
    pub(crate) max_layer: ByteSize,

    /// Time after the end of a window during which its layers are still in time
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = duration)]
    pub(crate) playout: Duration,

    /// How to determine the age of a message
    #[arg(long, value_enum, default_value = "estimated")]
    pub(crate) clock: ClockKind,

    /// End with an error when nothing arrives for this time, but at least two time windows
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration)]
    pub(crate) idle_timeout: Duration,

    /// Stop this long after the first byte [default: at the end of the stream]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) duration: Option<Duration>,

    /// Print one JSON event per line (listed below)
    #[arg(long)]
    pub(crate) json: bool,

    /// Show no progress bar
    #[arg(long, short)]
    pub(crate) quiet: bool,
}

/// How the clocks of the hosts relate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ClockKind {
    /// Unknown: the fastest message has age 0
    Estimated,
    /// The clocks of both hosts agree
    Shared,
}

fn listen(text: &str) -> Result<SocketAddr, String> {
    if let Ok(port) = text.parse::<u16>() {
        return Ok((std::net::Ipv4Addr::UNSPECIFIED, port).into());
    }
    text.parse().map_err(|_| {
        "write a port such as 5000, or an address and port such as 10.0.0.1:5000".to_owned()
    })
}

impl SendArgs {
    /// Returns the number of layers.
    pub(crate) fn layer_count(&self) -> usize {
        if self.files.is_empty() {
            self.layers.unwrap_or(8).into()
        } else {
            self.files.len()
        }
    }

    /// Returns the policy in effect.
    pub(crate) fn policy(&self) -> Policy {
        self.policy.unwrap_or(if self.no_ldc {
            Policy::None
        } else {
            Policy::LowestFirst
        })
    }

    /// Checks that the arguments agree.
    pub(crate) fn check(&self) -> Result<(), String> {
        if self.layer_count() > MAX_LAYERS as usize {
            return Err(format!(
                "{} files: at most {MAX_LAYERS} layers",
                self.layer_count()
            ));
        }
        if !(1..=MAX_PAYLOAD as u64).contains(&self.message.0) {
            return Err(format!("--message {}: from 1 byte to 1 MiB", self.message));
        }
        let range = Duration::from_millis(10)..=Duration::from_secs(600);
        if !range.contains(&self.window) {
            return Err("--window: from 10ms to 10m".to_owned());
        }
        if self.no_ldc && !matches!(self.policy(), Policy::None | Policy::Deadline) {
            let name = self.policy().name();
            return Err(format!(
                "--policy {name} needs a ring: with --no-ldc use `none` or `deadline`"
            ));
        }
        self.check_transport()?;
        if matches!(self.unsent, Some(ByteSize(bytes)) if !(1..=1 << 30).contains(&bytes)) {
            return Err("--unsent: from 1 byte to 1 GiB".to_owned());
        }
        Ok(())
    }

    /// Checks that transport, order and policy agree.
    fn check_transport(&self) -> Result<(), String> {
        if self.transport == Transport::Quic {
            for (is_set, option) in [
                (self.no_ldc, "--no-ldc"),
                (self.unsent.is_some(), "--unsent"),
                (self.nodelay, "--nodelay"),
            ] {
                if is_set {
                    return Err(format!(
                        "{option} is for TCP: leave it out with --transport quic"
                    ));
                }
            }
        } else if self.datagrams {
            return Err("--datagrams needs --transport quic".to_owned());
        } else if self.key_file.is_some() {
            return Err("--key-file needs --transport quic: TCP is not encrypted".to_owned());
        }
        if self.order == Order::Sent {
            return Ok(());
        }
        let name = if self.order == Order::Strict {
            "strict"
        } else {
            "weighted"
        };
        if self.no_ldc {
            return Err(format!("--order {name} needs a ring: leave out --no-ldc"));
        }
        if self.policy() == Policy::PriorityProgress {
            return Err(format!(
                "--order {name}: priority-progress already sends the base layer first, leave --order out"
            ));
        }
        if self.layer_count() > ldc_linux::schedule::MAX_CLASSES {
            return Err(format!(
                "--order {name} takes at most {} layers",
                ldc_linux::schedule::MAX_CLASSES
            ));
        }
        Ok(())
    }
}

impl RecvArgs {
    /// Checks that the arguments agree.
    pub(crate) fn check(&self) -> Result<(), String> {
        if self.duration == Some(Duration::ZERO) {
            return Err("--duration 0 receives nothing: write a positive time".to_owned());
        }
        if self.transport == Transport::Tcp && self.key_file.is_some() {
            return Err("--key-file needs --transport quic: TCP is not encrypted".to_owned());
        }
        if self.idle_timeout.is_zero() {
            return Err(
                "--idle-timeout 0 ends every stream at once: write a positive time".to_owned(),
            );
        }
        Ok(())
    }
}
