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
      the test of the thesis: eight layers of 128 kbit/s for a minute; each second, what has not left
      is dropped from the highest layer down. The receiver tells bytes of each layer, what came in
      time, and how old it was
  ldc-stream send --no-ldc receiver:5000
      the same by plain send: on a slow link all layers come, all of them late
  ldc-stream recv --output incoming/ 5000
  ldc-stream send --layer-rate 500k receiver:5000 base.h264 better.h264 best.h264
      layers from files, the base layer first; what was dropped stays a hole in the copy
  ldc-stream send --policy priority-progress --window 2s receiver:5000
      each window's layers at once, the base layer first, until its time is over

Without the base layer there is nothing to play: lowest-first keeps it as long as the ring has
room, deadline one window longer than the others.";

const SEND_HELP: &str = "\
Policies, what becomes of data whose time window is over while it is still in the ring:
  lowest-first       the sender drops it, from the highest layer down (thesis chapter 5); the base
                     layer stays as long as the ring has room for a window beside it
  naive              the sender drops whatever waits whenever the next layer is due: the mistake of
                     the thesis's Figure 5.5
  deadline           every message carries its deadline, the window's end (of the base layer one
                     window later); it is passed over by itself
  priority-progress  all layers of a window are due at its start, the base layer first; what is left
                     at its end is passed over
  none               it is sent all the same; a full ring makes the sender wait

With --no-ldc: `none` [default] sends everything, `deadline` skips a message that is late already
when its turn to be written comes.

Events of --json, one object a line, on standard output; the field `event` names it:
  started    address, layers, layer_rate_bps, window_s, policy, ldc, congestion, slots
  progress   seconds, offered_bytes, and messages: pending, dropped, refused; every second
  end        result (sent, unconfirmed, receiver_left, failed, interrupted), exit_code, message,
             seconds, windows, offered_bytes, written_bytes, and messages: offered, written, dropped
             by the policy, expired, refused by a full ring; what was written is not known when the
             connection broke

Exit codes:
  0    everything was sent or dropped by the policy, and the receiver has seen the end
  1    failed: no connection, or it broke
  2    wrong usage
  3    the receiver left before the end, or did not confirm it within --linger
  74   the result could not be written to standard output, whatever else happened
  130  interrupted by Ctrl-C or SIGTERM";

const RECV_HELP: &str = "\
A window of a layer is complete when all its bytes came, on time when they came before the window's end
plus --playout. A window is playable as far as its layers are on time without a gap from the base
layer up; `playable` counts the time for which the base layer at least was.

How old a message is counts from when it was due at the sender. With --clock estimated, the fastest
message counts as new: the two hosts' clocks need not agree. With --clock shared they must.

Events of --json, one object a line, on standard output; the field `event` names it:
  waiting    address
  refused    peer, reason: a connection that did not begin as a stream does; the wait goes on
  started    peer, layers, layer_rate_bps, window_s
  progress   seconds, bytes, layers (bytes of each)
  end        result (complete, stopped: --duration is over, cut: the stream broke off, silent:
             nothing arrived for --idle-timeout, failed, interrupted), exit_code, message, seconds (since the first byte), bytes, rate_bps,
             on_time_bytes, windows, playable_s, usable_layers (mean of all windows),
             layers (bytes, on_time_bytes, messages, windows_complete, windows_on_time),
             age_ms and base_age_ms (p50, p90, p99, max; null without messages), corrupt,
             out_of_order, beyond_limit (messages)

Exit codes:
  0    the stream came to its end, or --duration is over
  1    failed, the stream broke off, or nothing arrived for --idle-timeout
  2    wrong usage
  74   the result could not be written to standard output, whatever else happened
  130  interrupted by Ctrl-C or SIGTERM";

/// Streams layers over TCP, and drops late what would come too late.
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
    /// Receive layers, and account for what came in time
    #[command(after_long_help = RECV_HELP)]
    Recv(RecvArgs),
}

#[derive(Debug, clap::Args)]
pub(crate) struct SendArgs {
    /// Where `ldc-stream recv` listens
    #[arg(value_name = "HOST:PORT")]
    pub(crate) to: String,

    /// Layers from files, the base layer first [default: generated ones]
    #[arg(value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,

    /// Generated layers, the base layer counted: 1 to 64 [default: 8]
    #[arg(long, value_name = "N", conflicts_with = "files", value_parser = clap::value_parser!(u8).range(1..=i64::from(MAX_LAYERS)))]
    pub(crate) layers: Option<u8>,

    /// Bits a second of each layer: 500k, 2M; 131072 are 128 kbit/s as the thesis counts them
    #[arg(long, value_name = "RATE", default_value = "131072")]
    pub(crate) layer_rate: BitRate,

    /// Time window: the layers of one belong together, and are worth nothing after it
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = duration)]
    pub(crate) window: Duration,

    /// What to drop (see below) [default: lowest-first; with --no-ldc none]
    #[arg(long, value_enum)]
    pub(crate) policy: Option<Policy>,

    /// Plain send instead of a ring: what is in the socket's buffer goes out, however late
    #[arg(long)]
    pub(crate) no_ldc: bool,

    /// How long to send [default: 60s; files to their end]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) duration: Option<Duration>,

    /// Most bytes of a message: what is dropped or sent as a whole
    #[arg(long, value_name = "SIZE", default_value = "1400")]
    pub(crate) message: ByteSize,

    /// Slots of the ring, one a message [default: eight windows]
    #[arg(long, value_name = "N", conflicts_with = "no_ldc", value_parser = clap::value_parser!(u32).range(1..=i64::from(1 << 20)))]
    pub(crate) slots: Option<u32>,

    /// Bytes that may lie unsent in the socket [default: follows the rate, at least three segments;
    /// with --no-ldc the system's, usually no limit]
    #[arg(long, value_name = "SIZE")]
    pub(crate) unsent: Option<ByteSize>,

    /// Congestion control, as in /proc/sys/net/ipv4/tcp_available_congestion_control
    /// [default: the system's]
    #[arg(long, value_name = "NAME")]
    pub(crate) congestion: Option<String>,

    /// Do not gather small writes (TCP_NODELAY): younger on an idle link, smaller packets on a busy one
    #[arg(long)]
    pub(crate) nodelay: bool,

    /// How long the rest may take after the last window, the receiver's goodbye included
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration)]
    pub(crate) linger: Duration,

    /// Print one JSON event a line (they are listed below)
    #[arg(long)]
    pub(crate) json: bool,

    /// No progress bar
    #[arg(long, short)]
    pub(crate) quiet: bool,
}

/// What becomes of data whose window is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Policy {
    /// Dropped at the window's end, from the highest layer down
    LowestFirst,
    /// Whatever waits is dropped whenever the next layer is due
    Naive,
    /// Passed over by itself
    Deadline,
    /// A window's layers at once, the base layer first
    PriorityProgress,
    /// Sent all the same
    None,
}

impl Policy {
    /// As on the command line.
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
    /// Where to listen: a port, or an address of this host and a port; port 0 takes a free one
    #[arg(value_name = "[ADDR:]PORT", value_parser = listen)]
    pub(crate) listen: SocketAddr,

    /// Keep the layers here, as layer-0, layer-1 and so on; an older one is replaced
    #[arg(long, short, value_name = "DIR")]
    pub(crate) output: Option<PathBuf>,

    /// With --output: no file grows beyond this
    #[arg(long, value_name = "SIZE", default_value = "1GiB")]
    pub(crate) max_layer: ByteSize,

    /// How long after a window's end its layers are still in time
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = duration)]
    pub(crate) playout: Duration,

    /// How to know how old a message is
    #[arg(long, value_enum, default_value = "estimated")]
    pub(crate) clock: ClockKind,

    /// End with an error when nothing arrives for so long, and for two time windows of the stream
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration)]
    pub(crate) idle_timeout: Duration,

    /// Stop after so long, counted from the first byte [default: at the end of the stream]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) duration: Option<Duration>,

    /// Print one JSON event a line (they are listed below)
    #[arg(long)]
    pub(crate) json: bool,

    /// No progress bar
    #[arg(long, short)]
    pub(crate) quiet: bool,
}

/// Whose clock tells a message's age.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ClockKind {
    /// The fastest message counts as new
    Estimated,
    /// The clocks of both hosts agree
    Shared,
}

fn listen(text: &str) -> Result<SocketAddr, String> {
    if let Ok(port) = text.parse::<u16>() {
        return Ok((std::net::Ipv4Addr::UNSPECIFIED, port).into());
    }
    text.parse()
        .map_err(|_| "write a port, 5000, or an address and a port, 10.0.0.1:5000".to_owned())
}

impl SendArgs {
    /// Layers in all.
    pub(crate) fn layer_count(&self) -> usize {
        if self.files.is_empty() {
            self.layers.unwrap_or(8).into()
        } else {
            self.files.len()
        }
    }

    /// The policy in force.
    pub(crate) fn policy(&self) -> Policy {
        self.policy.unwrap_or(if self.no_ldc {
            Policy::None
        } else {
            Policy::LowestFirst
        })
    }

    /// Whether the arguments fit together.
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
                "--policy {name} takes a ring: with --no-ldc only `none` and `deadline` make sense"
            ));
        }
        if matches!(self.unsent, Some(ByteSize(bytes)) if !(1..=1 << 30).contains(&bytes)) {
            return Err("--unsent: from 1 byte to 1 GiB".to_owned());
        }
        Ok(())
    }
}

impl RecvArgs {
    /// Whether the arguments fit together.
    pub(crate) fn check(&self) -> Result<(), String> {
        if self.duration == Some(Duration::ZERO) {
            return Err("--duration 0: nothing would be received".to_owned());
        }
        if self.idle_timeout.is_zero() {
            return Err("--idle-timeout 0: every stream would end at once".to_owned());
        }
        Ok(())
    }
}
