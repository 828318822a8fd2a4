//! Descriptions of multicast sessions in SDP (RFC 8866): what players need, and no more.
//!
//! | line | read | written |
//! | --- | --- | --- |
//! | `v=0`, `o=`, `s=` | required | yes |
//! | `c=` | of the session or of each medium; a group, with its TTL | yes |
//! | `t=` | ignored | `0 0`: permanent |
//! | `a=source-filter: incl` (RFC 4570) | the first source | where there is one |
//! | `a=x-bfed:` | the name of a session of a federation | where there is one |
//! | `m=` | one format; media with port 0 are left out | yes |
//! | `a=rtpmap:` | of the format | where there is one |
//! | others | ignored | `a=tool`, `a=type` |

use alloc::borrow::ToOwned;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt::Write;
use core::net::{IpAddr, SocketAddr};

/// Longest description in bytes.
pub const MAX_SDP_LEN: usize = 4096;
/// Most media of a session.
pub const MAX_MEDIA: usize = 16;
/// Longest text in bytes: a name, an origin, a URL.
pub const MAX_TEXT_LEN: usize = 1024;
/// Longest token in bytes: a kind of media, a protocol, a format.
const MAX_TOKEN_LEN: usize = 64;

proto_core::errors! {
    /// Why text is not a description that can be used.
    pub enum SdpError {
        /// Longer than [`MAX_SDP_LEN`], a text longer than [`MAX_TEXT_LEN`], or not UTF-8.
        Text = "the description or a text in it is too long, or is not UTF-8",
        /// No `v=0`, `o=` or `s=`, or a malformed line.
        Line = "a line of the description is missing or malformed",
        /// An address is not that of a group.
        Address = "a medium has no group",
        /// No media, or more than [`MAX_MEDIA`].
        Media = "there are no media, or too many",
    }
}

/// The originator of a session (`o=`), which identifies the session.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Origin {
    /// User name, and session identifier.
    pub session: String,
    /// Address of the host, as written.
    pub address: String,
    /// Version of the description.
    pub version: u64,
}

impl Origin {
    /// Parses the value of an `o=` line.
    fn parse(value: &str) -> Result<Self, SdpError> {
        let mut words = value.split(' ');
        let mut next = || words.next().filter(|word| !word.is_empty());
        let (user, id, version) = (next(), next(), next());
        let (network, family, address) = (next(), next(), next());
        let (Some(user), Some(id), Some(version), Some(_), Some(_), Some(address)) =
            (user, id, version, network, family, address)
        else {
            return Err(SdpError::Line);
        };
        let session = [user, " ", id].concat();
        if session.len() > MAX_TEXT_LEN || address.len() > MAX_TEXT_LEN {
            return Err(SdpError::Text);
        }
        Ok(Origin {
            session,
            address: address.to_owned(),
            version: version.parse().map_err(|_| SdpError::Line)?,
        })
    }

    /// Returns the line, without its end.
    pub(crate) fn line(&self) -> String {
        let family = if self.address.contains(':') {
            "IP6"
        } else {
            "IP4"
        };
        let Origin {
            session,
            address,
            version,
        } = self;
        alloc::format!("o={session} {version} IN {family} {address}")
    }

    /// Parses the payload of a deletion: the origin line, or a whole description.
    ///
    /// # Errors
    /// There is no such line.
    pub fn of_deletion(payload: &[u8]) -> Result<Self, SdpError> {
        let text = text(payload)?;
        let mut values = lines(text).filter_map(|(kind, value)| (kind == 'o').then_some(value));
        Origin::parse(values.next().ok_or(SdpError::Line)?)
    }
}

/// One medium of a session.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Media {
    /// What it is: `video`, `audio`, `application`.
    pub kind: String,
    /// Its group and port.
    pub group: SocketAddr,
    /// Protocol: `RTP/AVP`, `udp`.
    pub protocol: String,
    /// Format: of RTP a payload type.
    pub format: String,
    /// What a dynamic payload type stands for, such as `opus/48000/2`.
    pub rtpmap: Option<String>,
    /// TTL of its datagrams, where the description says it.
    pub ttl: Option<u8>,
    /// The one host whose datagrams count (source-specific multicast).
    pub source: Option<IpAddr>,
}

impl Media {
    /// Creates a medium without optional parts.
    #[must_use]
    pub fn new(kind: &str, group: SocketAddr, protocol: &str, format: &str) -> Self {
        Media {
            kind: kind.to_owned(),
            group,
            protocol: protocol.to_owned(),
            format: format.to_owned(),
            rtpmap: None,
            ttl: None,
            source: None,
        }
    }
}

/// A session.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Description {
    /// Name, for people.
    pub name: String,
    /// Name of a session of a federation that is presented here.
    pub federated: Option<String>,
    /// Its media, at least one.
    pub media: Vec<Media>,
}

fn text(bytes: &[u8]) -> Result<&str, SdpError> {
    if bytes.len() > MAX_SDP_LEN {
        return Err(SdpError::Text);
    }
    core::str::from_utf8(bytes).map_err(|_| SdpError::Text)
}

/// The lines of a description: their letters and values.
fn lines(text: &str) -> impl Iterator<Item = (char, &str)> {
    text.lines().filter_map(|line| {
        let (kind, value) = line.split_once('=')?;
        let mut chars = kind.chars();
        let kind = chars.next().filter(|_| chars.next().is_none())?;
        Some((kind, value))
    })
}

fn bounded(text: &str, most: usize) -> Result<String, SdpError> {
    match text.len() <= most {
        true => Ok(text.to_owned()),
        false => Err(SdpError::Text),
    }
}

/// What `c=` and `a=source-filter` say, of the session or of a medium.
#[derive(Clone, Copy, Default)]
struct Place {
    group: Option<(IpAddr, Option<u8>)>,
    source: Option<IpAddr>,
}

impl Place {
    /// Parses the value of a `c=` line: `IN IP4 239.1.2.3/127`.
    fn connection(value: &str) -> Option<(IpAddr, Option<u8>)> {
        let mut words = value.split_whitespace();
        let (_, _, address) = (words.next()?, words.next()?, words.next()?);
        let mut parts = address.split('/');
        let group: IpAddr = parts.next()?.parse().ok()?;
        let ttl = match group {
            IpAddr::V4(_) => parts.next().and_then(|ttl| ttl.parse().ok()),
            IpAddr::V6(_) => None,
        };
        group.is_multicast().then_some((group, ttl))
    }

    /// Parses the value of an attribute: `source-filter: incl IN IP4 * 10.0.0.1`.
    fn filter(value: &str) -> Option<IpAddr> {
        let rest = value.strip_prefix("source-filter:")?.trim_start();
        let mut words = rest.split_whitespace();
        let mode = words.next()?;
        let source = words.nth(3)?.parse().ok()?;
        (mode == "incl").then_some(source)
    }

    fn read(&mut self, kind: char, value: &str) -> Result<(), SdpError> {
        match kind {
            'c' => self.group = Some(Place::connection(value).ok_or(SdpError::Address)?),
            'a' => self.source = self.source.or(Place::filter(value)),
            _ => {}
        }
        Ok(())
    }
}

/// A medium while its lines are read; its group may still be the session's.
struct Reading {
    media: Media,
    place: Place,
}

impl Reading {
    /// Parses the value of an `m=` line: `video 5004 RTP/AVP 33`.
    fn parse(value: &str) -> Result<Self, SdpError> {
        let mut words = value.split_whitespace();
        let mut next = || bounded(words.next().ok_or(SdpError::Line)?, MAX_TOKEN_LEN);
        let (kind, port, protocol, format) = (next()?, next()?, next()?, next()?);
        let port = port.split('/').next().unwrap_or_default();
        let port: u16 = port.parse().map_err(|_| SdpError::Line)?;
        let nowhere = SocketAddr::new(IpAddr::from([0, 0, 0, 0]), port);
        Ok(Reading {
            media: Media::new(&kind, nowhere, &protocol, &format),
            place: Place::default(),
        })
    }

    fn read(&mut self, kind: char, value: &str) -> Result<(), SdpError> {
        self.place.read(kind, value)?;
        let map = value.strip_prefix("rtpmap:").filter(|_| kind == 'a');
        if let Some((format, map)) = map.and_then(|map| map.split_once(' '))
            && format == self.media.format
        {
            self.media.rtpmap = Some(bounded(map.trim(), MAX_TOKEN_LEN)?);
        }
        Ok(())
    }

    fn finish(self, session: Place) -> Result<Media, SdpError> {
        let group = self.place.group.or(session.group);
        let (group, ttl) = group.ok_or(SdpError::Address)?;
        let mut media = self.media;
        media.group.set_ip(group);
        media.ttl = ttl;
        media.source = self.place.source.or(session.source);
        Ok(media)
    }
}

impl Description {
    /// Creates a description.
    #[must_use]
    pub fn new(name: &str, media: Vec<Media>) -> Self {
        Description {
            name: name.to_owned(),
            federated: None,
            media,
        }
    }

    /// Parses a description.
    ///
    /// # Errors
    /// See [`SdpError`].
    pub fn parse(bytes: &[u8]) -> Result<(Origin, Self), SdpError> {
        let mut lines = lines(text(bytes)?);
        if lines.next() != Some(('v', "0")) {
            return Err(SdpError::Line);
        }
        let (mut origin, mut name, mut federated) = (None, None, None);
        let mut session = Place::default();
        let mut media: Vec<Reading> = Vec::new();
        for (kind, value) in lines {
            if kind == 'm' {
                if media.len() == MAX_MEDIA {
                    return Err(SdpError::Media);
                }
                media.push(Reading::parse(value)?);
                continue;
            }
            match (kind, media.last_mut()) {
                (_, Some(last)) => last.read(kind, value)?,
                ('o', None) => origin = Some(Origin::parse(value)?),
                ('s', None) => name = Some(bounded(value.trim(), MAX_TEXT_LEN)?),
                (_, None) => {
                    session.read(kind, value)?;
                    if let Some(url) = value.strip_prefix("x-bfed:").filter(|_| kind == 'a') {
                        federated = Some(bounded(url.trim(), MAX_TEXT_LEN)?);
                    }
                }
            }
        }
        let (Some(origin), Some(name)) = (origin, name) else {
            return Err(SdpError::Line);
        };
        // Port 0 says that a medium is not there.
        let media = media.into_iter().filter(|one| one.media.group.port() != 0);
        let media: Result<Vec<Media>, SdpError> = media.map(|one| one.finish(session)).collect();
        let media = media?;
        if media.is_empty() {
            return Err(SdpError::Media);
        }
        let description = Description {
            name,
            federated,
            media,
        };
        Ok((origin, description))
    }

    /// Returns the text of the description.
    #[must_use]
    pub fn emit(&self, origin: &Origin) -> String {
        let mut text = String::from("v=0\r\n");
        // Writing to a string cannot fail.
        let _ = write!(text, "{}\r\ns={}\r\n", origin.line(), line(&self.name));
        let same = self.media.windows(2).all(|two| {
            (two[0].group.ip(), two[0].ttl, two[0].source)
                == (two[1].group.ip(), two[1].ttl, two[1].source)
        });
        let first = self.media.first().filter(|_| same);
        if let Some(first) = first {
            connection(&mut text, first);
        }
        text.push_str("t=0 0\r\na=tool:polycast\r\na=type:broadcast\r\n");
        if let Some(url) = &self.federated {
            let _ = write!(text, "a=x-bfed:{}\r\n", line(url));
        }
        if let Some(first) = first {
            filter(&mut text, first);
        }
        for media in &self.media {
            let (kind, format) = (word(&media.kind), word(&media.format));
            let (port, protocol) = (media.group.port(), word(&media.protocol));
            let _ = write!(text, "m={kind} {port} {protocol} {format}\r\n");
            if !same {
                connection(&mut text, media);
                filter(&mut text, media);
            }
            if let Some(map) = &media.rtpmap {
                let _ = write!(text, "a=rtpmap:{format} {}\r\n", line(map));
            }
        }
        text
    }
}

fn family(address: IpAddr) -> &'static str {
    if address.is_ipv4() { "IP4" } else { "IP6" }
}

fn connection(text: &mut String, media: &Media) {
    let group = media.group.ip();
    let _ = write!(text, "c=IN {} {group}", family(group));
    if let (IpAddr::V4(_), Some(ttl)) = (group, media.ttl) {
        let _ = write!(text, "/{ttl}");
    }
    text.push_str("\r\n");
}

fn filter(text: &mut String, media: &Media) {
    if let Some(source) = media.source {
        let (family, group) = (family(source), media.group.ip());
        let _ = write!(
            text,
            "a=source-filter: incl IN {family} {group} {source}\r\n"
        );
    }
}

/// Text for the rest of a line: without control characters, never empty.
fn line(text: &str) -> String {
    let clean: String = text.chars().filter(|char| !char.is_control()).collect();
    let clean = clean.trim();
    match clean.is_empty() {
        true => "-".to_string(),
        false => clean.to_owned(),
    }
}

/// Text for a word of a line.
fn word(text: &str) -> String {
    let clean = text.chars().filter(char::is_ascii_graphic);
    let clean: String = clean.take(MAX_TOKEN_LEN).collect();
    match clean.is_empty() {
        true => "-".to_string(),
        false => clean,
    }
}
