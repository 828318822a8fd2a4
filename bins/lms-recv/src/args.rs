//! The command line.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;
use cli::transfer::{Assist, TransferArgs, check_buffer, check_name};
use cli::units::{ByteSize, duration};
use ltp_linux::Group;

const AFTER_HELP: &str = "\
Examples:
  lms-recv --group 239.1.2.3:5000 --output /srv/images
      wait for a sender and store its file under its name in /srv/images
  lms-recv --group 232.1.2.3:5000 --source 10.0.0.1 --output - | tar x
      source-specific multicast: a stream, from 10.0.0.1 only
  lms-recv --group [ff3e::1234]:5000 --source 2001:db8::1 --output DIR
      the same over IPv6; [ff15::1234%eth0]:5000 is a group of the site, received on eth0
  lms-recv --group 239.1.2.3:5000 --source 10.0.0.1 --assist dyram://192.0.2.7 --output DIR
      without multicast: the dyram-relay at 192.0.2.7 forwards what 10.0.0.1 sends

The file stands under a temporary name (.NAME.XXXXXX.part) until it is whole and its BLAKE3 digest
is the sender's; then it replaces an older file of that name in one step. If the older file is
already the same (the sender announces its digest), nothing is transferred. A transfer that fails
or is interrupted leaves no file; only SIGKILL leaves the .part file behind. Names from the network are
stripped of folders, leading dots and control characters.

With --output - the bytes are verified block by block before they are written; when the transfer
fails in the middle, the bytes before were written: check the exit code.

--assist lms speaks to routers by IP options, for which it needs CAP_NET_RAW (root, or `setcap
cap_net_raw+ep`), and by UDP where those are not answered; without the capability a warning is printed
and it speaks by UDP, as --assist lms+udp does from the start.

--assist dyram://RELAY[:PORT] receives from a relay by unicast (port 4143 unless given) and needs
--source. With a second relay, dyram://A,B, the transfer continues without loss when the first one fails.
dyram+multicast://RELAY joins the group for the data, and requests lost packets from the relay.

Events of --json, one object a line, on standard output (on standard error with --output -); the
field `event` names it:
  waiting    group, source, interface
  warning    message
  opened     session, source, name, path, length (null: a stream), start
  relay      address, state (attached, lost, refused): with --assist dyram
  progress   bytes verified from the start on, length, lost_packets; once a second
  rejected   block: its digest was wrong; it is requested again
  resumed    session: the sender was restarted with the same content
  complete   length, digest (BLAKE3 in hexadecimal), path, seconds, goodput_bps, existing: whether the
             file was there before
  serving    seconds: the receiver stays to repair losses of other receivers
  end        result (complete, failed, interrupted), exit_code, message, missing (ranges of bytes),
             data_packets, repairs, duplicates, unneeded_repairs, parity (packets that were used), unneeded_parity,
             restored_packets, restored_wrongly (blocks), lost_packets, requests_group, requests_source,
             requests_taken, repairs_sent, parity_sent, blocks_rejected, digests_rejected
             (requested again, since the block that was fetched again did not match either), kernel_drops
             (the socket's buffer was full; requests of other receivers, which this socket refuses, count
             too), dropped; also printed when the transfer could not begin, but not after wrong usage

Exit codes:
  0    everything arrived, and its digest is the sender's
  1    failed or incomplete: the message names what is missing
  2    wrong usage
  74   the result could not be written to standard output, however the transfer ended
  130  interrupted by Ctrl-C or SIGTERM";

/// Receive a file or a stream from a multicast group, whole or not at all
#[derive(Debug, clap::Parser)]
#[command(name = "lms-recv", version, after_long_help = AFTER_HELP, max_term_width = 100)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) transfer: TransferArgs,

    /// Folder to store the file in, or - to write the bytes to standard output
    #[arg(long, short, value_name = "DIR|-")]
    pub(crate) output: PathBuf,

    /// Address of the sender: source-specific multicast (RFC 4607); required with --assist dyram
    #[arg(long, value_name = "ADDR", value_parser = cli::address::host)]
    pub(crate) source: Option<IpAddr>,

    /// This host's address, to which the sender answers and by which it counts receivers [default: the
    /// interface's first]
    #[arg(long, value_name = "ADDR", value_parser = cli::address::host)]
    pub(crate) address: Option<IpAddr>,

    /// Name to store the file under [default: the sender's]
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,

    /// With --assist lms: replier cost; routers prefer repliers with lower values
    ///
    /// The cost doubles while this host loses 1 % of the packets itself, and rises up to six times at 16 %:
    /// it could not repair what it lacks.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..65535))]
    pub(crate) replier_cost: u16,

    /// With --assist lms or dyram: do not repair losses of other receivers
    #[arg(long, conflicts_with = "replier_cost")]
    pub(crate) no_replier: bool,

    /// With --assist lms: also repair where routers choose repliers at random and elect none (their
    /// policies random and search-party)
    #[arg(long, conflicts_with = "no_replier")]
    pub(crate) repair_unelected: bool,

    /// Time to stay after completion to repair losses of other receivers [default with --assist lms
    /// or dyram: until the sender ends, or 3s after the last request; else 0]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) linger: Option<Duration>,

    /// Where to start when the sender began earlier
    #[arg(long, value_enum, default_value = "beginning")]
    pub(crate) start: Start,

    /// Give up when the sender, once heard, or every relay is silent for this time
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration)]
    pub(crate) timeout: Duration,

    /// Longest wait for a sender to appear [default: no limit]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) connect_timeout: Option<Duration>,

    /// Memory for data that cannot be written yet because data before it is missing
    #[arg(long, value_name = "SIZE", default_value = "64MiB")]
    pub(crate) buffer: ByteSize,

    /// Flush the file to the disk before reporting success (fsync)
    #[arg(long)]
    pub(crate) fsync: bool,
}

/// Where a late receiver starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Start {
    /// At the first byte; an error if the sender no longer holds it
    Beginning,
    /// At the next block to be sent: for streams
    Now,
}

impl Args {
    /// Refuses combinations that cannot work.
    pub(crate) fn check(&self) -> Result<(), String> {
        if self.is_stream() {
            if self.name.is_some() {
                return Err("--name is about a file: --output - writes none".into());
            }
            if self.fsync {
                return Err("--fsync is about a file: --output - writes none".into());
            }
        } else {
            self.check_folder()?;
        }
        let group = Group::new(self.transfer.group);
        if group.is_source_specific() && self.source.is_none() {
            return Err(format!(
                "{} is source-specific: name the sender with --source ADDR",
                group.address.ip()
            ));
        }
        if matches!(self.transfer.assist()?, Assist::Dyram(..)) && self.source.is_none() {
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
        self.transfer.check_version("--source", self.source)?;
        self.transfer.check_version("--address", self.address)?;
        check_buffer(self.buffer)?;
        check_name(self.name.as_deref())?;
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

    pub(crate) fn is_stream(&self) -> bool {
        self.output.as_os_str() == "-"
    }
}
