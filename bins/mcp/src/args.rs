//! The command line.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;
use cli::units::{BitRate, Rate, duration};
use tcpxm_tokio::is_group;

use crate::hosts::Target;

const AFTER_HELP: &str = "\
Examples:
  mcp --key-file mcp.key image.iso alpha beta gamma
      each host runs `mcpd --dir DIR --key-file F`; exits with code 0 when all three have the file and
      its BLAKE3 digest is right
  mcp --key-file mcp.key --to releases/ build/ --hosts-file hosts
      copies the folder build to releases/build below each host's DIR (`--to releases/v2` renames it)
  mcp --key-file mcp.key --rate 500M --min-rate 50M image.iso --hosts-file hosts
      limits the rate to 500 Mbit/s, and serves a host that cannot follow at 50 Mbit/s separately
  mcp --key-file mcp.key image.iso --hosts-file hosts >failed
  mcp --key-file mcp.key image.iso --hosts-file failed
      writes the hosts that failed to standard output, one a line, with the reason as a comment; the
      second run sends only what they lack

Data is sent once to all hosts where multicast works. The others pass it on to each other while they
receive it (--no-relay: it is sent separately to each of them): each block is verified first, and a
host that fails, or is slow, is bypassed. Hosts change between multicast and unicast during the copy.
A host that fails during the copy is retried when the others are done (--retries), as is a host that
cannot be reached within 3 s (without --connect-timeout), does not answer the data connection within
5 s, or acknowledges nothing for 5 s while others could continue. A host that refuses the copy is not
retried. A host that the others wait for is named.
Parts of a file that a host already has are compared by digest and not sent again.

FILE becomes DIR/FILE on each host, `--to NAME` gives another name, `--to FOLDER/` puts it into a
folder. Existing folders are merged, files are replaced, nothing is deleted.

Devices, sockets, pipes, and links that lead out of a folder are not copied (each is named in a
warning). A file that changes while it is read is reported as failed.

Events of --json, one object a line, on standard output; the field `event` names it:
  opened     copy, name, entries, bytes, hosts, secure
  skipped    path, reason
  host       host, address, state (connected, compared), held (bytes already there)
  started    hosts, to_send (bytes on the data connection), group, source_port, port, sealed, carrier
  mode       host, mode (unicast_only, unicast_group, multicast_only, unicast_group_only, multicast, relay,
             island: another host of its subnet multicasts to it)
  feeder     host, feeder (the host that passes data on to it; null: this one), reason (arranged, died,
             stalled, slow, tried, wrong_bytes, gone, closed, unreachable, refused)
  island     head: the host that multicasts what it receives to others of its subnet; members: how many,
             group
  bypassed   host: it passes nothing on any more; reason (wrong_bytes, stalled, slow, gone), block
  detached   host: too slow for the others, served separately (--min-rate); rate_bps that it takes,
             others_bps: upper estimate of what the others could take (null: not known)
  waiting    host, reason (silent, slow), seconds (of silence): the others wait for this host; where it
             is slow, rate_bps, others_bps, option (the option that frees the others)
  progress   at most five a second and host: host, received, to_receive, held, bytes, rate_bps, mode,
             limiting: null, or host, address, rate_bps, others_bps, option of the host that limits the
             rate of all now
  verified   host, bytes, received, seconds
  failed     host, reason, message, will_retry (when the others are done: --retries)
  round      round (2 is the first), hosts: the hosts that are retried
  sent       bytes, seconds: every host has received all data, or has failed
  end        result (verified, some_failed, all_failed, failed, interrupted), exit_code, verified,
             failed (hosts), bytes, seconds, goodput_bps (of data sent and verified), limiting: null, or
             as above, the host that limited the rate longest; separate: host, rate_bps, others_bps of
             each host that was served separately, measured from then on; relayed: number of hosts
             fed over links; fed_bytes: bytes that this host sent to them; bypassed: host, reason, block

Exit codes:
  0    every host has everything, verified
  1    failed before any data was sent: FILE cannot be read, or fewer hosts than --min-receivers
       take part
  2    wrong usage
  3    some hosts failed; the others are verified
  4    all hosts failed, each for the reason given
  74   the result could not be written to standard output
  130  interrupted by Ctrl-C or SIGTERM";

/// Copy a file or a folder to many hosts at once, over multicast where it works and over unicast
/// elsewhere, verified on each host
// One field for each option.
#[derive(Debug, clap::Parser)]
#[command(name = "mcp", version, after_long_help = AFTER_HELP, max_term_width = 100)]
pub(crate) struct Args {
    /// File or folder to copy
    #[arg(value_name = "FILE|DIR")]
    pub(crate) source: PathBuf,

    /// Hosts to copy to, by name or address ([IPV6]:PORT); mcpd runs there [default port: 4139]
    #[arg(value_name = "HOST[:PORT]", value_parser = crate::hosts::target)]
    pub(crate) hosts: Vec<Target>,

    /// Place below the folder of mcpd: a new name, or a folder with a slash at the end
    #[arg(long, value_name = "PATH", value_parser = place)]
    pub(crate) to: Option<String>,

    /// File with more hosts, one a line, # starts a comment; - is standard input
    #[arg(long, value_name = "F")]
    pub(crate) hosts_file: Option<PathBuf>,

    /// Multicast group [default: a random one of 239.192.0.0/14 or ff18::/16; 232.x.y.z and ff3x:: are
    /// source-specific]
    #[arg(long, value_name = "ADDR", value_parser = group)]
    pub(crate) group: Option<IpAddr>,

    /// Multicast where it works, never, or only
    #[arg(long, value_enum, default_value = "auto")]
    pub(crate) mode: Mode,

    /// Interface to send from, by name or by its address [default: chosen by the routes]
    #[arg(long, value_name = "IF")]
    pub(crate) interface: Option<String>,

    /// Hop limit of multicast packets: 1 stays on the link
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u8).range(1..))]
    pub(crate) ttl: u8,

    /// Upper limit of the rate in bits per second, all copies counted: 100M, 2.5G
    #[arg(long, value_name = "RATE", default_value = "unlimited")]
    pub(crate) rate: Rate,

    /// Congestion control algorithm
    #[arg(long, value_enum, default_value = "cubic")]
    pub(crate) congestion: CongestionControl,

    /// Serve a host separately, at its own pace, when it holds the others below this rate; auto: below half
    /// of what they could take, where they finish sooner without it; none: never
    #[arg(long, value_name = "auto|RATE|none", default_value = "auto", value_parser = min_rate)]
    pub(crate) min_rate: MinRate,

    /// Stop before any data is sent if fewer hosts take part
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) min_receivers: u32,

    /// Connection timeout of a host, in each round. When set, refused connections are retried until it
    /// expires, and all hosts are waited for [default: 10s]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) connect_timeout: Option<Duration>,

    /// Retries of a host that fails during the copy, when the others are done; only what it lacks is
    /// sent
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) retries: u32,

    /// Key shared with mcpd: a secret (`mcpd --new-key`), or PEM certificates
    #[arg(long, value_name = "F")]
    pub(crate) key_file: Option<PathBuf>,

    /// Without a key, send to other hosts than this one: anyone on the path can read and change the data
    #[arg(long, conflicts_with = "key_file")]
    pub(crate) insecure: bool,

    /// Carrier of the data: udp, or ip (protocol 6; needs CAP_NET_RAW here and on the hosts)
    #[arg(long, value_enum, default_value = "udp")]
    pub(crate) carrier: Carrier,

    /// Send to each host directly: no host passes data on to others
    #[arg(long)]
    pub(crate) no_relay: bool,

    /// Do not use UDP segmentation offload: slower, for networks that lose whole batches
    #[arg(long)]
    pub(crate) no_gso: bool,

    /// Do not encrypt the data: less work, for links without other users
    #[arg(long)]
    pub(crate) no_encryption: bool,

    /// Print one JSON event a line (listed below)
    #[arg(long)]
    pub(crate) json: bool,

    /// Show no progress bars
    #[arg(long, short)]
    pub(crate) quiet: bool,

    #[command(flatten)]
    pub(crate) log: cli::logging::LogArgs,
}

/// Use of multicast.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Mode {
    /// Multicast for the hosts it reaches, unicast for the others
    Auto,
    /// Unicast to each host
    Unicast,
    /// Multicast only: a host fails when for 3 s nothing but repairs has arrived there
    Multicast,
}

/// When a host is served separately.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MinRate {
    /// When it holds the others below half of what they could take, and they finish sooner without it.
    Auto,
    /// When it holds the others below this rate.
    Rate(BitRate),
    /// Never.
    None,
}

impl MinRate {
    /// Returns the fixed rate in bits per second, if there is one.
    pub(crate) fn bits(self) -> Option<u64> {
        match self {
            MinRate::Rate(rate) => Some(rate.0),
            MinRate::Auto | MinRate::None => None,
        }
    }
}

fn min_rate(text: &str) -> Result<MinRate, String> {
    match text.trim() {
        "auto" => Ok(MinRate::Auto),
        "none" => Ok(MinRate::None),
        rate => match rate.parse() {
            Ok(rate) => Ok(MinRate::Rate(rate)),
            Err(error) => Err(format!("{error}; or write auto, or none")),
        },
    }
}

/// Congestion control algorithm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum CongestionControl {
    /// RFC 9438, the default of Linux
    Cubic,
    /// RFC 5681 and 6582
    Newreno,
    /// BBR version 3, draft-ietf-ccwg-bbr: a model of the path instead of losses, for long or lossy paths
    Bbr,
}

fn place(text: &str) -> Result<String, String> {
    crate::tree::check_place(text).map(|()| text.to_owned())
}

/// Protocol that carries the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Carrier {
    /// UDP
    Udp,
    /// IP, protocol 6
    Ip,
}

fn group(text: &str) -> Result<IpAddr, String> {
    let group = text.parse().ok().filter(|group| is_group(*group));
    group.ok_or_else(|| {
        "write a multicast address that routers forward, such as 239.192.1.2 or 232.1.2.3; of IPv6 one of \
         admin-local scope or wider, such as ff18::1 or ff38::8000:1"
            .to_owned()
    })
}

impl Args {
    /// Returns the time that a host may take to answer.
    pub(crate) fn timeout(&self) -> Duration {
        self.connect_timeout.unwrap_or(Duration::from_secs(10))
    }
}
