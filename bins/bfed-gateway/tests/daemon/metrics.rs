//! The metrics page and its documentation.

use std::net::SocketAddr;

use bfed_gateway::metrics::METRICS;
use bfed_gateway::status::Show;

use crate::common::*;

#[test]
fn every_metric_of_the_table_is_on_the_page() {
    let one = Daemon::start("run", 1, "", "[metrics]\nlisten = \"127.0.0.1:0\"");
    let overview = one.show(Show::Overview);
    let at: SocketAddr = overview["metrics"].as_str().unwrap().parse().unwrap();
    eventually("its data node", || {
        (one.show(Show::Overview)["nodes"] == 1).then_some(())
    });
    let page = say(
        at,
        b"GET /metrics HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n",
    );
    let page = String::from_utf8(page).unwrap();
    // What goes up and down is no counter.
    for gauge in ["client_sessions", "readers", "streams", "channels"] {
        assert!(!page.contains(&format!("event=\"{gauge}\"")), "{page}");
    }
    assert!(
        page.contains("bfed_gateway_mediator_client_sessions 0"),
        "{page}"
    );
    let name = "join_latency_seconds";
    for line in [
        format!("# TYPE bfed_gateway_{name} histogram"),
        format!("bfed_gateway_{name}_bucket{{le=\"+Inf\"}} 0"),
        format!("bfed_gateway_{name}_count 0"),
    ] {
        assert!(page.contains(&line), "{line}: {page}");
    }
    for metric in METRICS {
        let name = format!("# TYPE bfed_gateway_{} ", metric.name);
        assert!(page.contains(&name), "{}", metric.name);
        let row = metric.documentation("bfed_gateway");
        let manual = include_str!("../../../../docs/manual/metrics.md");
        assert!(manual.contains(&row), "not in the manual: {row}");
    }
}
