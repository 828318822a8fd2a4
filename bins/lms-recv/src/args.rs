//! The command line.

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;
use cli::assist::Assist;
use cli::multicast::GroupArgs;
use cli::units::{ByteSize, duration};

const AFTER_HELP: &str = "\
Examples:
  lms-recv --group 239.1.2.3:5000 --output /srv/images
      waits for a sender and stores its file under its name in /srv/images
  lms-recv --group 232.1.2.3:5000 --source 10.0.0.1 --output - | tar x
      source-specific: only 10.0.0.1 is heard; a stream
  lms-recv --group 239.1.2.3:5000 --source 10.0.0.1 --assist dyram://192.0.2.7 --output DIR
      no multicast at all: the dyram-relay at 192.0.2.7 passes on what 10.0.0.1 sends

The file stands under a temporary name (.NAME.XXXXXX.part) until it is whole and its BLAKE3 digest
is the sender's; then it replaces an older file of that name in one step. If the older file is
already the same (the sender announces its digest), nothing is transferred. A transfer that fails
or is interrupted leaves no file; only a receiver that is killed outright (SIGKILL) leaves its .part.
Names from the network are stripped of folders, leading dots and
control characters.

With --output - the bytes are verified block by block before they are written; when the transfer
fails in the middle, what came before was written: mind the exit code.

--assist lms needs CAP_NET_RAW (root, or `setcap cap_net_raw+ep`); without it a warning is printed
and the sender is asked for repairs instead.

--assist dyram://RELAY[:PORT] receives from a relay by unicast (port 4143 unless given) and needs
--source. Name a second relay, dyram://A,B, to go on when the first one dies; nothing is lost then.
dyram+multicast://RELAY joins the group for the data, and asks the relay for what is lost.

Events of --json, one object a line, on standard output (on standard error with --output -); the
field `event` names it:
  waiting    group, source, interface
  warning    message
  opened     session, source, name, path, length (null: a stream), start
  relay      address, state (attached, lost, refused): with --assist dyram
  progress   bytes verified from the start on, length, lost_packets; every second
  rejected   block: its digest was wrong; it is asked for again
  resumed    session: the sender was restarted with the same content
  complete   length, digest (BLAKE3 in hexadecimal), path, seconds, goodput_bps, existing: it was
             already here
  serving    seconds: stays to repair others' losses
  end        result (complete, failed, interrupted), exit_code, message, missing (ranges of bytes),
             data_packets, repairs, duplicates, unneeded_repairs, lost_packets, requests_group,
             requests_source, requests_taken, repairs_sent, blocks_rejected, digests_rejected (asked for
             again, since the block fetched again did not match either), kernel_drops (the buffer was
             full; others' requests, which this socket refuses, count too), dropped; comes also
             when the transfer could not begin, but not after wrong usage

Exit codes:
  0    everything arrived, and its digest is the sender's
  1    failed or incomplete: the message names what is missing
  2    wrong usage
  74   the result could not be written to standard output, whatever else happened
  130  interrupted by Ctrl-C or SIGTERM";

/// Receives a file or a stream from a multicast group, whole or not at all.
#[derive(Debug, clap::Parser)]
#[command(name = "lms-recv", version, after_long_help = AFTER_HELP, max_term_width = 100)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) group: GroupArgs,

    /// Folder to store the file in; - writes the bytes to standard output
    #[arg(long, short, value_name = "DIR|-")]
    pub(crate) output: PathBuf,

    /// Take only this sender: source-specific multicast (RFC 4607); with --assist dyram: the sender
    #[arg(long, value_name = "ADDR")]
    pub(crate) source: Option<Ipv4Addr>,

    /// This host's address, which the sender answers to and counts receivers by [default: the
    /// interface's first]
    #[arg(long, value_name = "ADDR")]
    pub(crate) address: Option<Ipv4Addr>,

    /// Store it under this name instead of the sender's
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,

    /// Who helps with repairs: none, lms (routers), dyram://RELAY[:PORT] (relays, which carry the data
    /// too; several, with commas or by repeating it: the next one when one is silent), or
    /// dyram+multicast://RELAY (the same relays beside IP multicast, which carries the data)
    #[arg(long, value_name = "HELP", default_value = "none")]
    pub(crate) assist: Vec<Assist>,

    /// With --assist lms: replier cost; routers prefer hosts with lower values to repair others' losses
    ///
    /// Twice as much is offered while this host loses 1 % of the packets itself, and up to six times as much
    /// at 16 %: it could not repair what it lacks.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..65535))]
    pub(crate) replier_cost: u16,

    /// With --assist lms or dyram: never repair others' losses
    #[arg(long, conflicts_with = "replier_cost")]
    pub(crate) no_replier: bool,

    /// With --assist lms: also repair where routers choose by chance and elect nobody (their
    /// policies random and search-party)
    #[arg(long, conflicts_with = "no_replier")]
    pub(crate) answer_unelected: bool,

    /// Stay for so long after completion to repair others' losses [default with --assist lms
    /// or dyram: until the sender ends, or 3s after the last request; else 0]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) linger: Option<Duration>,

    /// Where to start when the sender began earlier
    #[arg(long, value_enum, default_value = "beginning")]
    pub(crate) start: Start,

    /// Give up when nothing is heard of a sender for so long, once it was heard; or of any relay
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration)]
    pub(crate) timeout: Duration,

    /// Wait so long for a sender to appear [default: for ever]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) wait: Option<Duration>,

    /// Memory for data that cannot be written yet, because something before it is missing
    #[arg(long, value_name = "SIZE", default_value = "64MiB")]
    pub(crate) buffer: ByteSize,

    /// Have the file on the disk, not just in the page cache, before reporting success (fsync)
    #[arg(long)]
    pub(crate) sync: bool,

    /// Print one JSON event a line (they are listed below)
    #[arg(long)]
    pub(crate) json: bool,

    /// No progress bar
    #[arg(long, short)]
    pub(crate) quiet: bool,

    #[command(flatten)]
    pub(crate) log: cli::logging::LogArgs,
}

/// Where to start late.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Start {
    /// At the first byte; an error if the sender no longer holds it
    Beginning,
    /// At what is sent next: for streams
    Now,
}

impl Args {
    /// Combinations that cannot work.
    pub(crate) fn check(&self) -> Result<(), String> {
        if self.is_stream() {
            if self.name.is_some() {
                return Err("--name is about a file: --output - writes none".into());
            }
            if self.sync {
                return Err("--sync is about a file: --output - writes none".into());
            }
        } else {
            self.check_folder()?;
        }
        if cli::multicast::is_source_specific(*self.group.group.ip()) && self.source.is_none() {
            return Err(format!(
                "{} is source-specific: name the sender with --source ADDR",
                self.group.group.ip()
            ));
        }
        if matches!(self.assist()?, Assist::Dyram(..)) && self.source.is_none() {
            return Err(
                "--assist dyram: name the sender with --source ADDR, relays find a session by its \
                 sender and group"
                    .into(),
            );
        }
        if self
            .source
            .is_some_and(|source| source.is_multicast() || source.is_unspecified())
        {
            return Err("--source is the address of one host".into());
        }
        cli::args::check_buffer(self.buffer)?;
        cli::args::check_name(self.name.as_deref(), ltp_linux::name::is_plain)?;
        if self.is_stream() {
            return Ok(());
        }
        let writable = ltp_linux::output::check_writable(&self.output);
        writable.map_err(|why| format!("--output: {why}"))
    }

    fn check_folder(&self) -> Result<(), String> {
        let shown = self.output.display();
        match self.output.metadata() {
            Ok(metadata) if metadata.is_dir() => Ok(()),
            Ok(_) => Err(format!(
                "--output {shown} is not a folder; --name NAME renames the file"
            )),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Err(format!(
                "--output {shown} does not exist: `mkdir -p {shown}`"
            )),
            Err(error) => Err(format!("--output {shown}: {error}")),
        }
    }

    /// Who helps; what several `--assist` say together.
    pub(crate) fn assist(&self) -> Result<Assist, String> {
        Assist::together(&self.assist)
    }

    pub(crate) fn is_stream(&self) -> bool {
        self.output.as_os_str() == "-"
    }
}
