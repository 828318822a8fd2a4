//! Views of a stream for browsers: HLS, a page with a player, and JSON.
//!
//! | path | content |
//! | --- | --- |
//! | `/hls/NAME/index.m3u8`, `/hls/NAME/FLOW/index.m3u8` | the playlist of a flow, and its segments and parts beside it ([`media::hls`]) |
//! | `/play/NAME`, `/play/NAME/FLOW` | a page that plays it |
//! | `/info/NAME`, `/info/NAME/FLOW` | its container, the content type for Media Source, its readers |
//! | `/sessions` | the same of all sessions here, for hosts in `list` |
//!
//! A request for a part or a playlist that comes next waits for it (draft-pantos-hls-rfc8216bis §6.2.5), at most 20 s;
//! connections, and so waiting clients, are bounded by `max-connections`.

use std::net::IpAddr;
use std::time::Duration;

use bfed::{BnNum, SessionName};
use bfed_client::{Url, session_path};
use hyper::body::Bytes;
use hyper::header::{self, HeaderValue};
use hyper::{Response, StatusCode};
use media::Container;
use media::hls::{Found, Recorder};
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::edge::flow;
use super::hub::{Key, NoSegments, Shared, Viewed};
use super::moq;
use super::presented::Presented;
use super::server::{Answer, bytes, pieces, text};
use crate::native::listing::{self, MAX_LISTED, PresentedFlow};

/// The answer to a path that names nothing.
pub(super) const PATHS: &str = "sessions are at /s/NAME, players at /play/NAME, HLS at /hls/NAME/index.m3u8; the name percent-encoded";
/// Longest time for which a request waits for a part or a playlist.
const WAIT: Duration = Duration::from_secs(20);
/// Time between looks whether the stream is still there.
const LOOK: Duration = Duration::from_secs(1);
const PAGE: &str = include_str!("player.html");
/// The player itself, which the status page has, too.
pub(crate) const PLAYER: &str = include_str!("player.js");

/// A view of a flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum View {
    Stream,
    Hls(File),
    Page,
    Info,
}

/// A file of HLS.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum File {
    Playlist,
    Segment(u64),
    Part(u64, u64),
    Init(u64),
}

/// Parses a path: the view, and the flow.
pub(super) fn parse(path: &str) -> Option<(View, Key, SessionName)> {
    let (view, rest) = path.strip_prefix('/')?.split_once('/')?;
    let (view, rest) = match view {
        "s" => (View::Stream, rest),
        "play" => (View::Page, rest),
        "info" => (View::Info, rest),
        "hls" => {
            let (rest, name) = rest.rsplit_once('/')?;
            (View::Hls(file(name)?), rest)
        }
        _ => return None,
    };
    let (key, session) = flow(&format!("/s/{rest}"))?;
    Some((view, key, session))
}

fn file(name: &str) -> Option<File> {
    let number = |text: &str| -> Option<u64> {
        text.bytes()
            .all(|b| b.is_ascii_digit())
            .then(|| text.parse().ok())?
    };
    let mut parts = name.split('.');
    let file = match (parts.next()?, parts.next()?, parts.next()) {
        ("index", "m3u8", None) => File::Playlist,
        (segment, "ts" | "m4s", None) => File::Segment(number(segment)?),
        ("init", init, Some("mp4")) => File::Init(number(init)?),
        (segment, part, Some("ts" | "m4s")) => File::Part(number(segment)?, number(part)?),
        _ => return None,
    };
    parts.next().is_none().then_some(file)
}

/// The position of a playlist that a client waits for: `_HLS_msn` and `_HLS_part`.
fn position(query: &str) -> Result<Option<(u64, Option<u64>)>, ()> {
    let (mut segment, mut part) = (None, None);
    for (name, value) in query.split('&').filter_map(|pair| pair.split_once('=')) {
        let place = match name {
            "_HLS_msn" => &mut segment,
            "_HLS_part" => &mut part,
            _ => continue,
        };
        *place = Some(value.parse::<u64>().map_err(drop)?);
    }
    match (segment, part) {
        (None, Some(_)) => Err(()),
        (segment, part) => Ok(segment.map(|segment| (segment, part))),
    }
}

/// Serves a file of HLS.
pub(super) async fn hls(
    shared: &Shared,
    key: &Key,
    file: File,
    query: &str,
    (from, presented): (IpAddr, &Presented),
) -> Response<Answer> {
    let asked = (key, from);
    let content = |recorder: &Recorder<Bytes>| recorder.container().content_type();
    let served = match file {
        File::Playlist => {
            let Ok(position) = position(query) else {
                return text(
                    StatusCode::BAD_REQUEST,
                    "_HLS_msn and _HLS_part are numbers, the second needs the first",
                );
            };
            let playlist = |recorder: &Recorder<Bytes>, playlist: Option<Bytes>| {
                let listed = position.map_or(Found::Now(()), |(segment, part)| {
                    recorder.lists(segment, part)
                });
                match (listed, playlist) {
                    (Found::Never, Some(_)) => Found::Never,
                    (Found::Now(()), Some(text)) => {
                        let text = presented.keep_in_playlist(text);
                        Found::Now((vec![text], "application/vnd.apple.mpegurl"))
                    }
                    _ => Found::Later,
                }
            };
            let served = waited(shared, asked, playlist, StatusCode::BAD_REQUEST).await;
            if served.is_ok() {
                shared.hub().note_viewer(key, crate::limiter::source(from));
            }
            served
        }
        File::Segment(number) => {
            let segment =
                |recorder: &Recorder<Bytes>, _| typed(recorder.segment(number), content(recorder));
            waited(shared, asked, segment, StatusCode::NOT_FOUND).await
        }
        File::Part(number, part) => {
            let part = |recorder: &Recorder<Bytes>, _| {
                typed(recorder.part(number, part), content(recorder))
            };
            waited(shared, asked, part, StatusCode::NOT_FOUND).await
        }
        File::Init(number) => {
            let init = |recorder: &Recorder<Bytes>, _| match recorder.init(number) {
                Some(init) => Found::Now((vec![init.clone()], content(recorder))),
                None => Found::Never,
            };
            waited(shared, asked, init, StatusCode::NOT_FOUND).await
        }
    };
    match served {
        Ok((all, kind)) => pieces(all, kind),
        Err(response) => response,
    }
}

/// Pieces of a stream with their content type.
type Typed = (Vec<Bytes>, &'static str);

fn typed(found: Found<Vec<Bytes>>, kind: &'static str) -> Found<Typed> {
    match found {
        Found::Now(pieces) => Found::Now((pieces, kind)),
        Found::Later => Found::Later,
        Found::Never => Found::Never,
    }
}

/// Waits until `look` finds something; `never` is the status if it never will.
async fn waited(
    shared: &Shared,
    (key, client): (&Key, IpAddr),
    look: impl Fn(&Recorder<Bytes>, Option<Bytes>) -> Found<Typed>,
    never: StatusCode,
) -> Result<Typed, Response<Answer>> {
    let until = Instant::now() + WAIT;
    loop {
        let changed = shared
            .hub()
            .ask_segments(key, client)
            .map_err(no_segments)?;
        let changed = changed.notified();
        tokio::pin!(changed);
        // From here on no notification is missed.
        changed.as_mut().enable();
        // The lock is not held while it waits.
        let found = {
            let hub = shared.hub();
            let segments = hub.segments(key);
            segments.map_or(Found::Later, |(recorder, playlist)| {
                look(recorder, playlist)
            })
        };
        match found {
            Found::Now(found) => return Ok(found),
            Found::Never => {
                return Err(text(
                    never,
                    "the playlist has moved on, or is not there yet",
                ));
            }
            Found::Later => {}
        }
        let next = until.min(Instant::now() + LOOK);
        if tokio::time::timeout_at(next, changed).await.is_err() && Instant::now() >= until {
            return Err(text(
                StatusCode::SERVICE_UNAVAILABLE,
                "no new segment came; try again",
            ));
        }
    }
}

fn no_segments(why: NoSegments) -> Response<Answer> {
    match why {
        NoSegments::NoStream => text(StatusCode::NOT_FOUND, "the session has no source here"),
        NoSegments::NoContainer => text(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "HLS carries MPEG-TS and fragmented MP4 of one source; read the stream at /s/NAME",
        ),
        NoSegments::Limit => text(
            StatusCode::SERVICE_UNAVAILABLE,
            "too many sessions are watched over HLS here: see network.hls-sessions",
        ),
        NoSegments::ClientLimit => text(
            StatusCode::TOO_MANY_REQUESTS,
            "this address watches too many sessions over HLS: see network.hls-sessions-per-client",
        ),
    }
}

/// Returns where the player may connect to for MoQ: this server, under the name by which the client knows it.
fn moq_source(moq: Option<&moq::Handle>, requested: Option<&str>) -> Option<String> {
    let (port, host) = (moq?.port()?, requested?);
    // A policy cannot name an IPv6 address (Content Security Policy Level 3, section 2.3.1).
    let host = if host.starts_with('[') { "*" } else { host };
    Some(format!(" https://{host}:{port}"))
}

/// Serves the page with a player, which may connect to the listener for MoQ. `requested` is the host that the client asks.
pub(super) fn page(moq: Option<&moq::Handle>, requested: Option<&str>) -> Response<Answer> {
    let moq = moq_source(moq, requested).unwrap_or_default();
    let Ok(seed) = linux_net::process::random::<16>() else {
        return text(StatusCode::SERVICE_UNAVAILABLE, "no entropy");
    };
    let nonce: String = seed.iter().map(|byte| format!("{byte:02x}")).collect();
    let policy = format!(
        "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; connect-src 'self'{moq}; \
         media-src 'self' blob:; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    );
    let page = PAGE.replace("NONCE", &nonce);
    let page = page.replace("/* player.js */", PLAYER).into_bytes();
    let mut response = bytes(StatusCode::OK, page, "text/html; charset=utf-8");
    let headers = response.headers_mut();
    if let Ok(policy) = HeaderValue::from_str(&policy) {
        headers.insert(header::CONTENT_SECURITY_POLICY, policy);
    }
    headers.insert(
        header::X_CONTENT_TYPE_OPTIONS,
        HeaderValue::from_static("nosniff"),
    );
    headers.insert(
        header::REFERRER_POLICY,
        HeaderValue::from_static("no-referrer"),
    );
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// Returns the flow of a stream, for lists.
pub(super) fn presented(viewed: &Viewed, base: &Url) -> Option<PresentedFlow> {
    let (session, flow) = (SessionName::parse(&viewed.key.0).ok()?, viewed.key.1);
    let mime = viewed
        .container
        .filter(|_| !viewed.codecs.is_empty())
        .map(|container| {
            format!(
                "{}; codecs=\"{}\"",
                container.content_type(),
                viewed.codecs.join(", ")
            )
        });
    let address = base.with_path(&session_path(session.as_str(), flow)).ok()?;
    Some(PresentedFlow {
        session,
        flow,
        address: address.to_string(),
        mime,
        readers: Some(viewed.readers),
        viewers: Some(viewed.viewers),
    })
}

/// Returns the properties of a stream: those of all lists, and those of HTTP.
fn described(viewed: &Viewed, base: &Url) -> Option<Map<String, Value>> {
    let container = viewed.container.map(|container| match container {
        Container::Ts => "ts",
        Container::Mp4 => "mp4",
        Container::WebM => "webm",
    });
    let stream = session_path(&viewed.key.0, viewed.key.1);
    let beside = |view: &str| stream.replacen("/s/", view, 1);
    let has_segments = viewed
        .container
        .is_some_and(|container| container != Container::WebM);
    let mut row = presented(viewed, base)?.row();
    let of_http = [
        ("container", json!(container)),
        ("hls_active", json!(viewed.is_recorded)),
        ("stream", json!(stream)),
        ("play", json!(beside("/play/"))),
        (
            "hls",
            json!(has_segments.then(|| format!("{}/index.m3u8", beside("/hls/")))),
        ),
    ];
    row.extend(of_http.map(|(key, value)| (key.to_owned(), value)));
    Some(row)
}

fn document(document: &Value) -> Response<Answer> {
    pieces(vec![document.to_string().into()], "application/json")
}

/// Serves the properties of a stream.
pub(super) fn info(
    shared: &Shared,
    key: &Key,
    base: &Url,
    moq: Option<&moq::Handle>,
) -> Response<Answer> {
    let viewed = shared.hub().viewed(key);
    match viewed.and_then(|viewed| described(&viewed, base)) {
        Some(mut row) => {
            if let Some(offer) = moq.and_then(|moq| moq.offer(&key.0, key.1)) {
                row.insert("moq".to_owned(), offer);
            }
            document(&Value::Object(row))
        }
        None => text(StatusCode::NOT_FOUND, "the session has no source here"),
    }
}

/// Serves the list of sessions.
pub(super) fn sessions(
    shared: &Shared,
    (network, kind): (BnNum, &str),
    base: &Url,
    mediator: &Url,
) -> Response<Answer> {
    let all = shared.hub().all_viewed(MAX_LISTED + 1);
    let rows = all.iter().filter_map(|viewed| described(viewed, base));
    let mediator = mediator.to_string();
    let list = listing::document(network.get(), kind, Some(&mediator), rows.collect());
    let mut list = document(&list);
    // For this host alone.
    list.headers_mut()
        .remove(header::ACCESS_CONTROL_ALLOW_ORIGIN);
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_name_views_flows_and_files() {
        let view = |path: &str| parse(path).map(|(view, key, _)| (view, key.0, key.1));
        let name = "bfed%3A%2F%2F7%2Ffilm";
        let film = |view| Some((view, "bfed://7/film".to_owned(), 0));
        assert_eq!(view(&format!("/s/{name}")), film(View::Stream));
        assert_eq!(view(&format!("/play/{name}")), film(View::Page));
        for (text, file) in [
            ("index.m3u8", File::Playlist),
            ("12.ts", File::Segment(12)),
            ("12.3.m4s", File::Part(12, 3)),
            ("init.0.mp4", File::Init(0)),
        ] {
            assert_eq!(view(&format!("/hls/{name}/{text}")), film(View::Hls(file)));
        }
        for wrong in ["x.ts", "+1.ts", "1.2.3.ts", "index.m3u8.ts", "init.mp4", ""] {
            assert_eq!(view(&format!("/hls/{name}/{wrong}")), None, "{wrong}");
        }
        let two = "/hls/bfed%3A%2F%2F7%2Ffilm%2Fa%2Fb/1/3.ts";
        assert!(
            view(two)
                .is_none_or(|(view, _, flow)| (view, flow) == (View::Hls(File::Segment(3)), 1))
        );
        for wrong in ["/", "", "/x/y", "/hls/index.m3u8", "/play/", "/info/%ff"] {
            assert_eq!(view(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn positions_of_playlists() {
        assert_eq!(position(""), Ok(None));
        assert_eq!(position("_HLS_msn=4"), Ok(Some((4, None))));
        assert_eq!(
            position("a=b&_HLS_part=1&_HLS_msn=4"),
            Ok(Some((4, Some(1))))
        );
        assert_eq!(position("_HLS_part=1"), Err(()));
        assert_eq!(position("_HLS_msn=x"), Err(()));
    }
}
