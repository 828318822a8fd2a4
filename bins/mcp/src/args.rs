//! The command line.

use std::net::{IpAddr, Ipv6Addr};
use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;
use cli::units::{BitRate, Rate, duration};

use crate::hosts::Target;

const AFTER_HELP: &str = "\
Examples:
  mcp --key-file mcp.key image.iso alpha beta gamma
      on each of the hosts runs `mcpd --dir DIR --key-file F`; ends with code 0 when all three have
      the file and its BLAKE3 digest is right
  mcp --key-file mcp.key --to releases/ build/ --hosts-file hosts
      the folder build, as releases/build below each host's DIR (`--to releases/v2` would rename it)
  mcp --key-file mcp.key --rate 500M --min-rate 50M image.iso --hosts-file hosts
      never more than 500 Mbit/s, and a host that cannot follow at 50 goes on by itself
  mcp --key-file mcp.key image.iso --hosts-file hosts >failed
  mcp --key-file mcp.key image.iso --hosts-file failed
      hosts that failed are written to standard output, one a line, with the reason as a comment;
      the second run goes on from what they have and sends only what is missing

Data goes once to all hosts where multicast works, and to each of the others by itself; who changes
between the two is found out on the way. A host that fails on the way is tried again when the
others are done (--retries); one that refuses is not. So is a host that cannot be reached within 3 s
(without --max-wait), does not answer the data connection within 5 s, or acknowledges nothing for 5 s
while others could go on; a host that the others wait for is named. A file of which a host has parts already, be
it from an interrupted copy, is completed: what it has is compared by digests.

FILE becomes DIR/FILE on each host, `--to NAME` gives another name, `--to FOLDER/` puts it into a
folder, whatever is there already: folders are merged, files replaced, nothing is deleted.

Of folders everything is copied but devices, sockets, pipes, and links that lead out of the folder
(each is named in a warning). A file that changes while it is read is reported, and fails.

Events of --json, one object a line, on standard output; the field `event` names it:
  opened     copy, name, entries, bytes, hosts, secure
  skipped    path, reason
  host       host, address, state (connected, compared), held (bytes it has already)
  started    hosts, to_send (bytes on the data connection), group, source_port, port, sealed, carrier
  mode       host, mode (unicast_only, unicast_group, multicast_only, unicast_group_only, multicast)
  detached   host: too slow for the others, it goes on by itself (--min-rate)
  waiting    host, reason (silent, slow), seconds (of silence), rate_bps: the others wait for this host
  progress   at most five a second and host: host, received, to_receive, held, bytes, rate_bps, mode
  verified   host, bytes, received, seconds
  failed     host, reason, message, again (it is tried again when the others are done: --retries)
  round      round (2 is the first), hosts: the next try of those that failed
  sent       bytes, seconds: every host has all of the data connection, or has failed
  end        result (verified, some_failed, all_failed, failed, interrupted), exit_code, verified,
             failed (hosts), bytes, seconds, goodput_bps (of what was sent and verified)

Exit codes:
  0    every host has everything, verified
  1    failed before any data was sent: FILE cannot be read, or fewer hosts than --min-receivers
       take part
  2    wrong usage
  3    some hosts failed; the others are verified
  4    all hosts failed, each for the reason given
  74   the result could not be written to standard output, whatever else happened
  130  interrupted by Ctrl-C or SIGTERM";

/// Copies a file or a folder to many hosts at once: over multicast where it works, over unicast
/// where it does not, verified on each.
#[derive(Debug, clap::Parser)]
#[command(name = "mcp", version, after_long_help = AFTER_HELP, max_term_width = 100)]
pub(crate) struct Args {
    /// File or folder to copy
    #[arg(value_name = "FILE|DIR")]
    pub(crate) source: PathBuf,

    /// Hosts to copy to, by name or address ([IPV6]:PORT); mcpd runs there [default port: 4139]
    #[arg(value_name = "HOST[:PORT]", value_parser = crate::hosts::target)]
    pub(crate) hosts: Vec<Target>,

    /// Where to put it below the folder of mcpd: a new name, or with a slash at the end a folder
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

    /// Interface to send from, by name or by its address [default: where the routes lead]
    #[arg(long, value_name = "IF")]
    pub(crate) interface: Option<String>,

    /// Routers that multicast packets may pass, plus one: 1 stays on the link
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u8).range(1..))]
    pub(crate) ttl: u8,

    /// Most bits a second, all copies counted: 100M, 2.5G; congestion control finds less if need be
    #[arg(long, value_name = "RATE", default_value = "unlimited")]
    pub(crate) rate: Rate,

    /// Congestion control
    #[arg(long, value_enum, default_value = "cubic")]
    pub(crate) cc: CongestionControl,

    /// A host that holds the others below this rate goes on by itself, at its own pace
    #[arg(long, value_name = "RATE")]
    pub(crate) min_rate: Option<BitRate>,

    /// Give up before any data is sent when fewer hosts take part
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) min_receivers: u32,

    /// How long a host may take to answer, in each round; given, hosts that refuse are tried again
    /// until then, and all hosts are waited for [default: 10s]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) max_wait: Option<Duration>,

    /// A host that fails on the way is tried again so often, when the others are done; it goes on
    /// from what it has
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) retries: u32,

    /// The key that mcpd has too: a secret (`mcpd --new-key`), or PEM certificates
    #[arg(long, value_name = "F")]
    pub(crate) key_file: Option<PathBuf>,

    /// Without a key, send to other hosts than this one: anybody on the way can read and change it
    #[arg(long, conflicts_with = "key_file")]
    pub(crate) insecure: bool,

    /// What carries the data: udp, or ip (protocol 6, without UDP around it; needs CAP_NET_RAW here and
    /// on the hosts)
    #[arg(long, value_enum, default_value = "udp")]
    pub(crate) carrier: Carrier,

    /// Hand packets to the kernel one by one (no UDP segmentation offload): slower, for networks that lose
    /// whole batches
    #[arg(long)]
    pub(crate) no_gso: bool,

    /// Do not seal the data: less work, on links that nobody else can read or write to
    #[arg(long)]
    pub(crate) no_aead: bool,

    /// Print one JSON event a line (they are listed below)
    #[arg(long)]
    pub(crate) json: bool,

    /// No progress bars
    #[arg(long, short)]
    pub(crate) quiet: bool,

    #[command(flatten)]
    pub(crate) log: cli::logging::LogArgs,
}

/// Multicast or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Mode {
    /// Multicast for the hosts it reaches, unicast for the others
    Auto,
    /// To each host by itself
    Unicast,
    /// A host that multicast does not reach fails: for 3 s nothing but repairs has arrived there
    Multicast,
}

/// How the rate is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum CongestionControl {
    /// RFC 9438, what Linux does
    Cubic,
    /// RFC 5681 and 6582
    Newreno,
}

fn place(text: &str) -> Result<String, String> {
    crate::tree::check_place(text).map(|()| text.to_owned())
}

/// How data travels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Carrier {
    /// In UDP
    Udp,
    /// In IP
    Ip,
}

fn group(text: &str) -> Result<IpAddr, String> {
    if let Ok(group) = text.parse::<Ipv6Addr>() {
        // Link-local groups and below are no group of a copy (RFC 7346).
        let wide = group.is_multicast() && group.octets()[1] & 0x0f >= 4;
        return wide.then_some(group.into()).ok_or_else(|| {
            "write a multicast address of admin-local scope or wider, such as ff18::1 or ff38::8000:1"
                .to_owned()
        });
    }
    cli::multicast::group(&format!("{text}:1"))
        .map(|group| (*group.ip()).into())
        .map_err(|_| {
            "write a multicast address, such as 239.192.1.2, 232.1.2.3 or ff18::1".to_owned()
        })
}

impl Args {
    /// How long a host may take to answer.
    pub(crate) fn patience(&self) -> Duration {
        self.max_wait.unwrap_or(Duration::from_secs(10))
    }
}
