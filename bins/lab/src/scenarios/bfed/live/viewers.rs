//! Viewers without a screen: they take the film in as a player does, and note when each picture is complete.

use std::collections::BTreeMap;

use bfed_client::Url;
use bfed_client::http::{self, Timeouts};

use media::group::Header;

use super::super::moq::{Connector, Viewer};
use super::SESSION;
use super::film::{Picture, PictureLog};
use crate::prelude::*;

/// The longest playlist and part.
const MAX_BODY: usize = 8 << 20;

/// What a viewer has seen.
#[derive(Default)]
pub(super) struct Seen {
    /// By time in the film.
    pub(super) pictures: BTreeMap<u64, Picture>,
    /// From the request to the first picture.
    pub(super) first: Option<Duration>,
    /// How far behind the end of the playlist a player stays, with HLS.
    pub(super) hold_back: Duration,
}

impl Seen {
    pub(super) fn take(&mut self, started: Instant, picture: Picture) {
        self.first.get_or_insert_with(|| started.elapsed());
        self.pictures.insert(picture.time, picture);
    }
}

/// Runs a viewer on a thread without other work until that time has passed.
pub(super) fn watch(
    seconds: Duration,
    seen: &mut Seen,
    view: impl AsyncFnOnce(&mut Seen) -> Result<()>,
) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        match tokio::time::timeout(seconds, view(seen)).await {
            Ok(Ok(())) => bail!("the session has ended"),
            Ok(Err(error)) => Err(error),
            Err(_) => Ok(()),
        }
    })
}

/// Reads the stream as it comes.
pub(super) fn stream(url: &str, seconds: Duration) -> Result<Seen> {
    let (url, mut seen) = (url.parse::<Url>()?, Seen::default());
    watch(seconds, &mut seen, async |seen| {
        let (started, mut log) = (Instant::now(), PictureLog::default());
        let mut answer = http::get(&url, None, &Timeouts::default()).await?;
        ensure!(answer.status == 200, "{}", answer.into_error().await);
        while let Some(piece) = answer.next().await? {
            log.push(&piece, |picture| seen.take(started, picture));
        }
        Ok(())
    })?;
    Ok(seen)
}

/// Subscribes to the film over Media over QUIC, and takes each object as it comes.
pub(super) fn moq(url: &str, certificate: &Path, seconds: Duration) -> Result<Seen> {
    let mut seen = Seen::default();
    watch(seconds, &mut seen, async |seen: &mut Seen| {
        let (started, mut log) = (Instant::now(), PictureLog::default());
        let viewer = Viewer::connect(&Connector::open(certificate)?, url).await?;
        let mut groups = viewer.track(SESSION).await?.ordered();
        while let Some(mut group) = groups.next_group().await? {
            let header = group.read_frame().await?.context("an empty group")?;
            let header = Header::parse(&header.payload)?;
            if seen.first.is_none() {
                log.push(header.init, |_| ());
            }
            while let Some(frame) = group.read_frame().await? {
                log.push(&frame.payload, |picture| seen.take(started, picture));
            }
        }
        Ok(())
    })?;
    Ok(seen)
}

/// Plays HLS with partial segments: asks for the next part before it exists, and reads it when it does.
pub(super) fn hls(url: &str, seconds: Duration) -> Result<Seen> {
    let (url, mut seen) = (url.parse::<Url>()?, Seen::default());
    watch(seconds, &mut seen, async |seen| {
        let (started, mut log) = (Instant::now(), PictureLog::default());
        let mut list = Playlist::read(&fetch(&url).await?)?;
        let mut last = list.parts.last().context("a playlist without parts")?.0;
        loop {
            seen.hold_back = list.hold_back;
            for (number, uri) in &list.parts {
                if *number <= last {
                    continue;
                }
                let part = fetch(&beside(&url, uri)?).await?;
                log.push(&part, |picture| seen.take(started, picture));
                last = *number;
            }
            let next = format!(
                "{}?_HLS_msn={}&_HLS_part={}",
                url.path(),
                last.0,
                last.1 + 1
            );
            list = Playlist::read(&fetch(&url.with_path(&next)?).await?)?;
        }
    })?;
    Ok(seen)
}

/// A file in the folder of a playlist.
fn beside(url: &Url, file: &str) -> Result<Url> {
    let folder = url.path().rsplit_once('/').map_or("", |(folder, _)| folder);
    Ok(url.with_path(&format!("{folder}/{file}"))?)
}

async fn fetch(url: &Url) -> Result<Vec<u8>> {
    let answer = http::get(url, None, &Timeouts::default()).await?;
    ensure!(
        answer.status == 200,
        "{}: {}",
        url.path(),
        answer.into_error().await
    );
    Ok(answer.whole(MAX_BODY).await?.to_vec())
}

/// What a player needs of a playlist (RFC 8216bis).
#[derive(Debug, PartialEq)]
struct Playlist {
    hold_back: Duration,
    /// Segment and number of each part, and where it is.
    parts: Vec<((u64, u64), String)>,
}

impl Playlist {
    fn read(bytes: &[u8]) -> Result<Playlist> {
        let mut list = Playlist {
            hold_back: Duration::ZERO,
            parts: Vec::new(),
        };
        for line in std::str::from_utf8(bytes)?.lines() {
            if let Some(control) = line.strip_prefix("#EXT-X-SERVER-CONTROL:") {
                let hold = attribute(control, "PART-HOLD-BACK").context("no PART-HOLD-BACK")?;
                list.hold_back = Duration::try_from_secs_f64(hold.parse()?)?;
            }
            if let Some(part) = line.strip_prefix("#EXT-X-PART:") {
                let uri = attribute(part, "URI")
                    .context("a part without a URI")?
                    .trim_matches('"');
                let mut numbers = uri.split('.').map(str::parse::<u64>);
                let (Some(Ok(segment)), Some(Ok(number))) = (numbers.next(), numbers.next()) else {
                    bail!("{uri} is not a part");
                };
                list.parts.push(((segment, number), uri.to_owned()));
            }
        }
        Ok(list)
    }
}

/// The value of an attribute without commas.
fn attribute<'a>(list: &'a str, name: &str) -> Option<&'a str> {
    let mut attributes = list.split(',').filter_map(|one| one.split_once('='));
    attributes
        .find(|(key, _)| *key == name)
        .map(|(_, value)| value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_playlist_are_found() {
        let text = "#EXTM3U\n#EXT-X-SERVER-CONTROL:CAN-BLOCK-RELOAD=YES,PART-HOLD-BACK=1.5\n\
                    #EXT-X-PART:DURATION=0.2,URI=\"7.0.ts\",INDEPENDENT=YES\n#EXTINF:1.0,\n7.ts\n\
                    #EXT-X-PART:DURATION=0.2,URI=\"8.1.ts\"\n";
        let list = Playlist::read(text.as_bytes()).unwrap();
        let parts = [((7, 0), "7.0.ts".to_owned()), ((8, 1), "8.1.ts".to_owned())];
        assert_eq!(list.parts, parts);
        assert_eq!(list.hold_back, Duration::from_millis(1500));
        assert!(Playlist::read(b"#EXT-X-PART:URI=\"seven.ts\"").is_err());
    }
}
