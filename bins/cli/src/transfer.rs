//! What `lms-send` and `lms-recv` share: arguments about the group and about help with repairs.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use ltp_linux::{AttachmentEvent, Cancel, Carriage, Group, LmsCarrier, Recovery};

use crate::address::{self, RelayName};
use crate::units::{BitRate, ByteSize};

/// The arguments that both ends of a transfer take.
#[derive(Debug, Clone, clap::Args)]
pub struct TransferArgs {
    /// Multicast group and UDP port.
    #[arg(
        long,
        value_name = "ADDR:PORT",
        value_parser = address::group,
        help = "Multicast group and UDP port, such as 239.1.2.3:5000 or [ff3e::1234]:5000; [ff15::1%eth0]:5000 names the \
                interface too (232.x.y.z and ff3x:: are source-specific)"
    )]
    pub group: SocketAddr,

    /// Interface to use, by name or by its address [default: the zone of the group, else the one that the routing table
    /// gives]
    #[arg(long, value_name = "IF")]
    pub interface: Option<String>,

    /// Routers that multicast packets may pass, plus one (TTL, hop limit): 1 stays on the link
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u8).range(1..))]
    pub ttl: u8,

    /// File with the key of the group, 32 bytes raw or as 64 hexadecimal digits: only hosts that have it
    /// can forge data (create one with `openssl rand -hex 32`)
    #[arg(long, value_name = "F")]
    pub key_file: Option<PathBuf>,

    /// Help with repairs: none, lms (routers; by IP options, or by UDP where those are not permitted or not answered),
    /// lms+udp (routers, by UDP alone), dyram://RELAY[:PORT] (relays, which also carry the data; several, separated by commas or by repeating the option: the next one when one is silent), or
    /// dyram+multicast://RELAY (the same relays beside IP multicast, which carries the data)
    #[arg(long, value_name = "HELP", default_value = "none")]
    assist: Vec<Assist>,

    /// With --assist lms: UDP port of the routers (`capture.udp-port` in their configuration)
    #[arg(long, value_name = "PORT", default_value_t = ltp_linux::LMS_PORT, value_parser = clap::value_parser!(u16).range(1..))]
    pub lms_port: u16,

    /// Print one JSON event a line (they are listed below)
    #[arg(long)]
    pub json: bool,

    /// Show no progress bar
    #[arg(long, short)]
    pub quiet: bool,

    #[command(flatten)]
    /// Logging.
    pub log: crate::logging::LogArgs,
}

impl TransferArgs {
    /// Returns the group, on which this host uses `local_address`.
    ///
    /// # Errors
    /// A sentence: the key cannot be read.
    pub fn group(&self, local_address: Option<IpAddr>) -> Result<Group, String> {
        let mut group = Group::new(self.group);
        group.interface = self.interface.clone();
        group.local_address = local_address;
        group.ttl = self.ttl;
        let key = self.key_file.as_deref();
        group.key = key.map(read_key).transpose()?;
        Ok(group)
    }

    /// Returns the help with repairs that the `--assist` options name together.
    ///
    /// # Errors
    /// A sentence: they contradict each other, or name too many relays, or one twice.
    pub fn assist(&self) -> Result<Assist, String> {
        Assist::together(&self.assist)
    }

    /// Returns the help with repairs, its relays resolved to addresses of the group's version of IP.
    ///
    /// # Errors
    /// A sentence: as [`TransferArgs::assist`], or a relay has no such address, or one that no host has.
    pub fn recovery(&self) -> Result<Recovery, String> {
        self.assist()?.recovery(self.group, self.lms_port)
    }

    /// Checks that an address of an option is of the group's version of IP.
    ///
    /// # Errors
    /// A sentence about the option.
    pub fn check_version(&self, option: &str, address: Option<IpAddr>) -> Result<(), String> {
        let (group, version) = match self.group {
            SocketAddr::V4(_) => (true, "IPv4"),
            SocketAddr::V6(_) => (false, "IPv6"),
        };
        match address {
            Some(address) if address.is_ipv4() != group => Err(format!(
                "{option} {address}: the group is an {version} one, name an {version} address"
            )),
            _ => Ok(()),
        }
    }

    /// Whether messages other than errors are shown.
    #[must_use]
    pub fn is_verbose(&self) -> bool {
        !self.quiet && !self.json
    }
}

/// Reads the key of a group.
///
/// # Errors
/// A sentence: the file cannot be read, or holds no key.
pub fn read_key(path: &Path) -> Result<[u8; 32], String> {
    let shown = path.display();
    let bytes = std::fs::read(path).map_err(|e| format!("key file {shown}: {e}"))?;
    proto_core::key::parse(&bytes).ok_or_else(|| {
        format!(
            "key file {shown} is neither 32 bytes nor 64 hexadecimal digits: \
             make one with `openssl rand -hex 32 > {shown}`"
        )
    })
}

/// Returns `LENGTH in TIME, RATE TRANSPORT`, for the last line of a run.
#[must_use]
pub fn summary(bytes: u64, elapsed: std::time::Duration, assist: &Assist) -> String {
    let seconds = elapsed.as_secs_f64();
    let rate = BitRate(goodput_bps(bytes, elapsed) as u64);
    format!(
        "{} in {seconds:.1} s, {rate} {}",
        ByteSize(bytes),
        assist.transport()
    )
}

/// Returns bits of content a second.
#[must_use]
pub fn goodput_bps(bytes: u64, elapsed: std::time::Duration) -> f64 {
    let seconds = elapsed.as_secs_f64();
    if seconds > 0.0 {
        8.0 * bytes as f64 / seconds
    } else {
        0.0
    }
}

/// Returns a flag that Ctrl-C and SIGTERM raise.
///
/// # Errors
/// The kernel's, when no descriptor is left.
pub fn cancel_on_interrupt() -> std::io::Result<Cancel> {
    let cancel = Cancel::new()?;
    let raised = cancel.clone();
    crate::interrupt::on_raise(move || raised.cancel());
    if crate::interrupt::raised() {
        cancel.cancel();
    }
    Ok(cancel)
}

/// Returns the relay and its state, as events name it.
#[must_use]
pub fn relay_state(event: AttachmentEvent) -> (SocketAddr, &'static str) {
    match event {
        AttachmentEvent::Attached(relay) => (relay, "attached"),
        AttachmentEvent::Lost(relay) => (relay, "lost"),
        AttachmentEvent::Refused(relay) => (relay, "refused"),
    }
}

/// Checks that `name`, if given, can be the name of a file.
///
/// # Errors
/// A sentence about `--name`.
pub fn check_name(name: Option<&str>) -> Result<(), String> {
    match name {
        Some(name) if !ltp_linux::name::is_plain(name) => Err(format!(
            "--name {name:?} is not a plain file name: no folders, leading dot or control characters"
        )),
        _ => Ok(()),
    }
}

/// Checks that a buffer is large enough for a window of blocks.
///
/// # Errors
/// A sentence about `--buffer`.
pub fn check_buffer(size: ByteSize) -> Result<(), String> {
    if size.0 < 1 << 20 {
        return Err(format!("--buffer {size} is too small: at least 1MiB"));
    }
    Ok(())
}

/// Most relays that `--assist dyram://` names.
const MAX_RELAYS: usize = 4;

/// Help with repairs, as the user writes it: relays by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Assist {
    /// None: receivers ask the sender.
    None,
    /// LMS routers.
    Lms(LmsCarrier),
    /// A tree of DyRAM relays: those to attach to, in order of preference.
    Dyram(Carriage, Vec<RelayName>),
}

/// The scheme of each carriage.
const SCHEMES: [(&str, Carriage); 2] = [
    ("dyram://", Carriage::Relays),
    ("dyram+multicast://", Carriage::Multicast),
];

impl FromStr for Assist {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "none" => return Ok(Assist::None),
            "lms" => return Ok(Assist::Lms(LmsCarrier::Auto)),
            "lms+udp" => return Ok(Assist::Lms(LmsCarrier::Udp)),
            _ => {}
        }
        for (scheme, carriage) in SCHEMES {
            if let Some(relays) = text.strip_prefix(scheme) {
                let relay = |text: &str| text.strip_prefix(scheme).unwrap_or(text).parse();
                let relays: Result<_, String> = relays.split(',').map(relay).collect();
                return Ok(Assist::Dyram(carriage, relays?));
            }
        }
        Err(
            "write none, lms, lms+udp, dyram://RELAY:PORT or dyram+multicast://RELAY:PORT"
                .to_owned(),
        )
    }
}

impl Assist {
    /// Joins several `--assist` options: relays, one after the other.
    fn together(given: &[Assist]) -> Result<Assist, String> {
        let (first, rest) = given.split_first().ok_or("--assist is missing")?;
        let mut all = first.clone();
        for next in rest {
            match (&mut all, next) {
                (Assist::Dyram(carriage, relays), Assist::Dyram(same, more))
                    if carriage == same =>
                {
                    relays.extend_from_slice(more);
                }
                _ => {
                    return Err(
                        "--assist can be repeated only to name several relays: dyram://A:PORT and \
                         dyram://B:PORT"
                            .to_owned(),
                    );
                }
            }
        }
        if let Assist::Dyram(_, relays) = &all {
            if relays.len() > MAX_RELAYS {
                return Err(format!("--assist: at most {MAX_RELAYS} relays"));
            }
            let twice = (1..relays.len()).find(|&at| relays[..at].contains(&relays[at]));
            if let Some(at) = twice {
                return Err(format!("--assist: relay {} is there twice", relays[at]));
            }
        }
        Ok(all)
    }

    /// Returns how the data travels, for a summary.
    #[must_use]
    pub fn transport(&self) -> &'static str {
        match self {
            Assist::None => "by multicast",
            Assist::Lms(_) => "by multicast with LMS routers",
            Assist::Dyram(Carriage::Relays, _) => "by unicast through DyRAM relays",
            Assist::Dyram(_, _) => "by multicast beside DyRAM relays",
        }
    }

    /// Returns the help for a group, its relays resolved to addresses of the group's version of IP.
    ///
    /// # Errors
    /// A sentence: a relay has no such address, or one that no host has.
    pub fn recovery(&self, group: SocketAddr, lms_port: u16) -> Result<Recovery, String> {
        Ok(match self {
            Assist::None => Recovery::Source,
            Assist::Lms(carrier) => Recovery::Lms {
                carrier: *carrier,
                port: lms_port,
            },
            Assist::Dyram(carriage, relays) => {
                let relays = relays
                    .iter()
                    .map(|relay| relay.resolve(group))
                    .collect::<Result<_, _>>()?;
                Recovery::Dyram {
                    relays,
                    carriage: *carriage,
                }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Assist, String> {
        text.parse()
    }

    fn names(assist: &Assist) -> Vec<String> {
        match assist {
            Assist::Dyram(_, relays) => relays.iter().map(ToString::to_string).collect(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn relays_are_named_with_commas_or_by_repeating() {
        assert_eq!(parse("none"), Ok(Assist::None));
        assert_eq!(parse("lms"), Ok(Assist::Lms(LmsCarrier::Auto)));
        assert_eq!(parse("lms+udp"), Ok(Assist::Lms(LmsCarrier::Udp)));
        let both = parse("dyram://[2001:db8::1]:5,[2001:db8::2],192.0.2.1").expect("three");
        let all = ["[2001:db8::1]:5", "[2001:db8::2]:4143", "192.0.2.1:4143"];
        assert_eq!(names(&both), all);
        let two = parse("dyram://a:1,b").expect("two");
        assert_eq!(names(&two), ["a:1", "b:4143"]);
        assert_eq!(parse("dyram://a:1,dyram://b"), Ok(two.clone()));
        let third = parse("dyram://10.0.0.1:5").expect("one");
        let all = Assist::together(&[two.clone(), third]).expect("together");
        assert_eq!(names(&all), ["a:1", "b:4143", "10.0.0.1:5"]);
        assert!(Assist::together(&[two.clone(), two.clone()]).is_err());
        let beside = parse("dyram+multicast://c").expect("one");
        assert!(matches!(beside, Assist::Dyram(Carriage::Multicast, _)));
        assert!(matches!(two, Assist::Dyram(Carriage::Relays, _)));
        assert!(Assist::together(&[two.clone(), beside]).is_err());
        assert!(Assist::together(&[two, Assist::Lms(LmsCarrier::Auto)]).is_err());
        let five = parse("dyram://a,b,c,d,e").expect("five");
        assert!(Assist::together(&[five]).is_err());
    }

    #[test]
    fn wrong_ones_are_refused_with_a_hint() {
        for text in [
            "dyram://",
            "dyram://a:0",
            "dyram://a:x",
            "dyram://a b:1",
            "dyram://a:1,",
            "dyram://[2001:db8::1",
            "dyram://[2001:db8::1]x",
            "dyram://2001:db8::1:2:3:4:5:6:4143",
        ] {
            let error = parse(text).expect_err(text);
            assert!(error.contains("dyram://192.0.2.1:4143"), "{error}");
        }
        assert!(parse("dyram:/a:1").expect_err("one slash").contains("lms"));
    }
}
