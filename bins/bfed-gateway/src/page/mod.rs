//! The status page: one HTML file without external resources, which shows a JSON document.
//!
//! An attacker may have chosen any text in the document (names of sessions, a peer's notification). The page inserts it
//! as text, never as HTML, and may run only its own script (`Content-Security-Policy` with a nonce for each response).
//! Requests with a host name other than `localhost` are refused, so that a foreign page cannot reach it by a name that
//! resolves to this host.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::get;
use daemon_kit::exporter::Exporter;
use serde::Serialize;
use serde_json::{Value, json};

use crate::control::Command;
use crate::status::{Show, StatusHandle};

const PAGE: &str = include_str!("page.html");
/// Samples kept: ten minutes.
const SAMPLES: usize = 300;
/// Time between samples.
const INTERVAL: Duration = Duration::from_secs(2);

/// Rate and sessions at one moment.
#[derive(Clone, Copy, Debug, Serialize)]
struct Sample {
    rate_bps: u64,
    sessions: u64,
}

#[derive(Clone)]
struct State {
    status: StatusHandle,
    past: Arc<Mutex<VecDeque<Sample>>>,
    /// The URL below which browsers find pages with players.
    players: Option<Arc<str>>,
}

/// Serves until the task is dropped.
pub(crate) async fn serve(listener: Exporter, status: StatusHandle, players: Option<String>) {
    let state = State {
        status,
        past: Arc::default(),
        players: players.map(Arc::from),
    };
    let (for_page, sampled) = (state.clone(), state.clone());
    let for_list = state.clone();
    let router = Router::new()
        .route(
            "/sessions",
            get(move |headers: HeaderMap| sessions(for_list.clone(), headers)),
        )
        .route("/", get(|headers: HeaderMap| async move { page(&headers) }))
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
            let mut past = self.past.lock().unwrap_or_else(PoisonError::into_inner);
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

fn page(headers: &HeaderMap) -> Response {
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
    let policy = format!(
        "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    );
    let headers = [
        (header::CONTENT_SECURITY_POLICY, policy),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff".to_owned()),
        (header::REFERRER_POLICY, "no-referrer".to_owned()),
        (header::CACHE_CONTROL, "no-store".to_owned()),
    ];
    (headers, Html(PAGE.replace("NONCE", &nonce))).into_response()
}

async fn data(state: State, headers: HeaderMap) -> Response {
    if !is_local_name(&headers) {
        return refused();
    }
    let overview = state.status.document(Show::Overview).await;
    let nodes = state.status.document(Show::Nodes).await;
    let control = state.status.ask(Command::Page).await.transpose();
    let (Some(Ok(overview)), Some(Ok(nodes)), Ok(control)) = (overview, nodes, control) else {
        return StatusCode::SERVICE_UNAVAILABLE.into_response();
    };
    let counters = state.status.counters().await.ok();
    let readers = |node: &crate::data::Snapshot| node.native_gauges.get("readers").copied();
    let viewers = counters.map(|all| all.data.iter().filter_map(readers).sum::<u64>());
    let past = state
        .past
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .clone();
    let document = json!({
        "overview": overview,
        "nodes": nodes["nodes"],
        "control": control,
        "past": past,
        "interval_s": INTERVAL.as_secs(),
        "players": state.players.as_deref(),
        "viewers": viewers.filter(|_| state.players.is_some()),
    });
    as_json(&document)
}

/// Serves the list of sessions.
async fn sessions(state: State, headers: HeaderMap) -> Response {
    if !is_local_name(&headers) {
        return refused();
    }
    match state.status.listing().await {
        Ok(list) => as_json(&list),
        Err(_) => StatusCode::SERVICE_UNAVAILABLE.into_response(),
    }
}

fn as_json(document: &Value) -> Response {
    let headers = [
        (header::CONTENT_TYPE, "application/json"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::CACHE_CONTROL, "no-store"),
    ];
    (headers, document.to_string()).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

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
