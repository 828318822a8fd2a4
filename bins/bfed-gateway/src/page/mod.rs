//! The status page: one HTML file without external resources, which shows a JSON document.
//!
//! An attacker may have chosen any text in the document (names of sessions, a peer's notification). The page inserts it
//! as text, never as HTML, and may run only its own script (`Content-Security-Policy` with a nonce for each response).
//! Requests with a host name other than `localhost` are refused, so that a foreign page cannot reach it by a name that
//! resolves to this host.

mod hops;

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::Router;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::get;
use daemon_kit::exporter::Exporter;
use serde::Serialize;
use serde_json::{Value, json};

use crate::native::NetworkConfig;
use crate::native::http::view::PLAYER;
use crate::status::{Show, StatusHandle};

use hops::Hops;
pub(crate) use hops::quantile_ms;

const PAGE: &str = include_str!("page.html");
/// Samples kept: ten minutes.
const SAMPLES: usize = 300;
/// Time between samples.
const INTERVAL: Duration = Duration::from_secs(2);

/// Time for which a document is fresh.
const FRESH: Duration = Duration::from_secs(1);
/// Time for the parts of a busy gateway to answer.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Rate and sessions at one moment.
#[derive(Clone, Copy, Debug, Serialize)]
struct Sample {
    rate_bps: u64,
    sessions: u64,
}

/// A document, and when it was made.
type Made = (Instant, Arc<str>);

#[derive(Clone)]
struct State {
    status: StatusHandle,
    past: Arc<Mutex<VecDeque<Sample>>>,
    hops: Arc<Mutex<Hops>>,
    /// The last document, and when it was made: however many requests there are, data nodes are asked once in [`FRESH`].
    document: Arc<tokio::sync::Mutex<Option<Made>>>,
    players: Arc<Players>,
}

/// Where players find sessions.
#[derive(Debug, Default)]
pub(crate) struct Players {
    /// The URL below which browsers find pages with players.
    url: Option<String>,
    /// The sources of the policy that the player on the page may read from.
    sources: String,
}

impl Players {
    /// Returns the players of a network in a process with that many data nodes.
    pub(crate) fn new(network: &NetworkConfig, nodes: usize) -> Self {
        let origins = network.player_origins(nodes);
        // A policy names no IPv6 address, and what else has no place in one is left out: then the link beside the session
        // leads to the player.
        let is_source = |origin: &String| {
            let rest = origin.split_once("://").map_or("", |(_, rest)| rest);
            let is_of_host = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b':');
            !rest.is_empty() && rest.bytes().all(is_of_host)
        };
        let sources: Vec<String> = origins.into_iter().filter(is_source).collect();
        Players {
            url: network.players(),
            sources: sources.join(" "),
        }
    }
}

/// Serves until the task is dropped.
pub(crate) async fn serve(listener: Exporter, status: StatusHandle, players: Players) {
    let state = State {
        status,
        past: Arc::default(),
        hops: Arc::default(),
        document: Arc::default(),
        players: Arc::new(players),
    };
    let (for_page, sampled) = (state.clone(), state.clone());
    let (for_list, shown) = (state.clone(), Arc::clone(&state.players));
    let router = Router::new()
        .route(
            "/sessions",
            get(move |headers: HeaderMap| sessions(for_list.clone(), headers)),
        )
        .route(
            "/",
            get(|headers: HeaderMap| async move { page(&shown, &headers) }),
        )
        .route(
            "/data",
            get(move |headers: HeaderMap| data(for_page.clone(), headers)),
        );
    tokio::select! {
        () = sampled.remember() => {}
        result = listener.serve_router(router) => {
            if let Err(error) = result {
                tracing::error!(event = "status_page_failed", %error, "the status page cannot be served");
            }
        }
    }
}

impl State {
    async fn remember(self) {
        let mut ticks = tokio::time::interval(INTERVAL);
        let mut before = None;
        loop {
            ticks.tick().await;
            let Ok(all) = self.status.counters().await else {
                continue;
            };
            let nodes = all.data.iter();
            let links = nodes.flat_map(|node| node.links.iter().map(|link| (node.node, link)));
            lock(&self.hops).remember(links);
            let copied = |node: &crate::data::Snapshot| node.plane.get("copied_bytes").copied();
            let bytes: u64 = all.data.iter().filter_map(copied).sum();
            let since = bytes.saturating_sub(before.replace(bytes).unwrap_or(bytes));
            let own_bps = since * 8000 / (INTERVAL.as_millis() as u64);
            let own = all.data.iter().map(|node| node.sessions).sum();
            let sample = all.control.map_or(
                Sample {
                    rate_bps: own_bps,
                    sessions: own,
                },
                |control| Sample {
                    rate_bps: control.rate_bps,
                    sessions: control.sessions,
                },
            );
            let mut past = lock(&self.past);
            past.push_back(sample);
            if past.len() > SAMPLES {
                past.pop_front();
            }
        }
    }
}

/// Returns whether the request names an address or `localhost` as its host.
fn is_local_name(headers: &HeaderMap) -> bool {
    let host = headers
        .get(header::HOST)
        .and_then(|host| host.to_str().ok());
    host.is_some_and(|host| {
        let name = match host.rsplit_once(':') {
            Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) => name,
            _ => host,
        };
        let address = name.trim_start_matches('[').trim_end_matches(']');
        name.eq_ignore_ascii_case("localhost") || address.parse::<IpAddr>().is_ok()
    })
}

fn refused() -> Response {
    let text = "ask by this host's address or as localhost";
    (StatusCode::FORBIDDEN, text).into_response()
}

fn page(players: &Players, headers: &HeaderMap) -> Response {
    if !is_local_name(headers) {
        return refused();
    }
    let Ok(seed) = linux_net::process::random::<32>() else {
        return StatusCode::SERVICE_UNAVAILABLE.into_response();
    };
    let nonce: String = seed[..16]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let players = &players.sources;
    let policy = format!(
        "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; connect-src 'self' {players}; media-src blob: {players}; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    );
    let page = PAGE
        .replace("NONCE", &nonce)
        .replace("/* player.js */", PLAYER);
    let headers = [
        (header::CONTENT_SECURITY_POLICY, policy),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff".to_owned()),
        (header::REFERRER_POLICY, "no-referrer".to_owned()),
        (header::CACHE_CONTROL, "no-store".to_owned()),
    ];
    (headers, Html(page)).into_response()
}

async fn data(state: State, headers: HeaderMap) -> Response {
    if !is_local_name(&headers) {
        return refused();
    }
    let fresh = async {
        // Requests that come meanwhile wait, and get the same document.
        let mut last = state.document.lock().await;
        if let Some((_, document)) = last.as_ref().filter(|(at, _)| at.elapsed() < FRESH) {
            return Some(Arc::clone(document));
        }
        let document: Arc<str> = document(&state).await?.to_string().into();
        *last = Some((Instant::now(), Arc::clone(&document)));
        Some(document)
    };
    match tokio::time::timeout(TIMEOUT, fresh).await {
        Ok(Some(document)) => as_json(document.to_string()),
        Ok(None) | Err(_) => StatusCode::SERVICE_UNAVAILABLE.into_response(),
    }
}

/// Returns the document of the page; `None` while a part of the process does not answer.
async fn document(state: &State) -> Option<Value> {
    let overview = state.status.document(Show::Overview).await;
    let nodes = state.status.document(Show::Nodes).await;
    let viewers = state.status.document(Show::Viewers).await;
    let links = state.status.document(Show::Links).await;
    let (Some(Ok(viewers)), Some(Ok(mut links))) = (viewers, links) else {
        return None;
    };
    let control = state.status.page().await.transpose();
    let (Some(Ok(overview)), Some(Ok(nodes)), Ok(control)) = (overview, nodes, control) else {
        return None;
    };
    let past = lock(&state.past).clone();
    add_samples(state, &mut links);
    let document = json!({
        "overview": overview,
        "nodes": nodes["nodes"],
        "control": control,
        "past": past,
        "interval_s": INTERVAL.as_secs(),
        "players": state.players.url,
        "viewers": viewers["viewers"],
        "hops": links["links"],
        "hop_interval_s": INTERVAL.as_secs() * u64::from(Hops::every()),
    });
    Some(document)
}

/// Adds the past of each link.
fn add_samples(state: &State, links: &mut Value) {
    let hops = lock(&state.hops);
    for row in links["links"].as_array_mut().into_iter().flatten() {
        let number = |key: &str| row[key].as_u64().and_then(|n| u32::try_from(n).ok());
        if let (Some(node), Some(peer)) = (number("node"), number("peer")) {
            row["samples"] = hops.samples(node, peer);
        }
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Serves the list of sessions.
async fn sessions(state: State, headers: HeaderMap) -> Response {
    if !is_local_name(&headers) {
        return refused();
    }
    match state.status.listing().await {
        Ok(list) => as_json(list.to_string()),
        Err(_) => StatusCode::SERVICE_UNAVAILABLE.into_response(),
    }
}

fn as_json(document: String) -> Response {
    let headers = [
        (header::CONTENT_TYPE, "application/json"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::CACHE_CONTROL, "no-store"),
    ];
    (headers, document).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::native::HttpConfig;

    #[test]
    fn the_policy_names_the_servers_of_players_and_nothing_else_that_a_host_may_say() {
        let at = |port: u16| std::net::SocketAddr::from(([192, 0, 2, 1], port));
        let mut config = HttpConfig::new(at(8080), at(8090));
        let players = |config: &HttpConfig| Players::new(&NetworkConfig::Http(config.clone()), 2);
        let sources = players(&config).sources;
        assert_eq!(sources, "http://192.0.2.1:8080 http://192.0.2.1:8081");
        for host in ["x; script-src *", "x' *", "[2001:db8::1]", "*"] {
            config.host = Some(host.to_owned());
            assert_eq!(players(&config).sources, "", "{host}");
        }
        assert_eq!(Players::new(&NetworkConfig::None, 2).url, None);
    }

    #[test]
    fn only_addresses_and_localhost_are_names_of_the_page() {
        let local = |host: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::HOST, host.parse().unwrap());
            is_local_name(&headers)
        };
        for host in [
            "127.0.0.1:4180",
            "localhost",
            "LocalHost:1",
            "[::1]:4180",
            "[::1]",
            "192.0.2.1",
        ] {
            assert!(local(host), "{host}");
        }
        for host in [
            "evil.example",
            "evil.example:4180",
            "127.0.0.1.evil.example",
            "",
            "localhost.evil:1",
        ] {
            assert!(!local(host), "{host}");
        }
        assert!(!is_local_name(&HeaderMap::new()));
    }
}
