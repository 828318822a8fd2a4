//! The documents of `status --json`, and the metrics page: names that scripts rely on.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::process::Command;

use crate::common::*;
use lms_router::metrics::METRICS;
use lms_router::status::{self, Show};
use serde_json::{Value, json};

fn keys(value: &Value) -> Vec<&str> {
    value
        .as_object()
        .expect("object")
        .keys()
        .map(String::as_str)
        .collect()
}

#[test]
fn documents_keep_their_names() {
    with_namespaces(|| {
        let bed = Testbed::new();
        let daemon = start(&bed.router);
        let overview = daemon.status(Show::Overview);
        assert_eq!(
            keys(&overview),
            [
                "capabilities",
                "configuration",
                "groups",
                "guard",
                "interfaces",
                "metrics",
                "neighbours",
                "pid",
                "policy",
                "source",
                "uptime_s",
                "version",
                "xdp_groups",
            ]
        );
        assert_eq!(
            keys(&overview["configuration"]),
            ["file", "last_error", "needs_restart", "rejected", "reloads"]
        );
        let interfaces = daemon.status(Show::Interfaces);
        assert_eq!(
            keys(&interfaces["interfaces"][0]),
            [
                "address",
                "control_sent",
                "dmcasts_sent",
                "dropped",
                "index",
                "ipv6",
                "link_local",
                "mtu",
                "name",
                "number",
                "prefix_len",
                "received",
                "requests_sent",
                "too_long",
            ]
        );
        let counters = daemon.status(Show::Counters);
        assert_eq!(
            keys(&counters),
            ["drops", "hierarchy", "igmp", "packets", "queues", "routes"]
        );
        assert_eq!(
            keys(&counters["packets"]),
            [
                "control",
                "dmcast",
                "dropped",
                "passed",
                "request_routed",
                "request_to_parent",
                "request_to_replier",
                "request_turned",
            ]
        );
        for reason in lms_proto::router::DropReason::ALL {
            assert_eq!(counters["drops"][reason.name()], 0, "{reason:?}");
        }
    });
}

#[test]
fn documents_show_the_static_route() {
    with_namespaces(|| {
        let bed = Testbed::new();
        let daemon = start(&bed.router);
        let overview = daemon.status(Show::Overview);
        assert_eq!(
            (
                &overview["source"],
                &overview["policy"],
                &overview["groups"]
            ),
            (&json!("static"), &json!("static"), &json!(1))
        );
        let groups = daemon.status(Show::Groups);
        assert_eq!(
            groups,
            json!({"groups": [{
                "source": "10.0.1.2", "group": "239.1.2.3", "upstream": "up",
                "downstream": ["one", "two"],
                "replier": {"interface": "one", "neighbour": "10.0.2.2", "cost": null},
            }]})
        );
    });
}

#[test]
fn the_command_prints_text_or_json() {
    with_namespaces(|| {
        let bed = Testbed::new();
        let daemon = start(&bed.router);
        for (what, expected) in [
            (None, "route source"),
            (
                Some("groups"),
                "10.0.1.2  239.1.2.3  up        one,two     10.0.2.2  one",
            ),
            (Some("interfaces"), "10.0.1.1/24"),
            (Some("counters"), "request_turned"),
        ] {
            let mut command = Command::new(env!("CARGO_BIN_EXE_lms-router"));
            command
                .arg("status")
                .args(what)
                .arg("--socket")
                .arg(daemon.socket());
            let text = String::from_utf8(command.output().expect("run").stdout).expect("text");
            assert!(text.contains(expected), "{what:?}: {text}");
            let json = command.arg("--json").output().expect("run").stdout;
            assert!(
                serde_json::from_slice::<Value>(&json)
                    .expect("JSON")
                    .is_object()
            );
        }
    });
}

#[test]
fn hundreds_of_groups_come_whole() {
    with_namespaces(|| {
        let bed = Testbed::new();
        let mut config = "[source]\nkind = \"static\"\n".to_owned();
        for n in 0..1000 {
            config += &format!(
                "[[route]]\nsource = \"10.0.1.2\"\ngroup = \"239.7.{}.{}\"\nupstream = \"up\"\ndownstream = [\"one\"]\n",
                n / 256,
                n % 256
            );
        }
        let daemon = Daemon::start(&bed.router, &config);
        let groups = daemon.groups(1000);
        let names: BTreeSet<&str> = groups
            .as_array()
            .unwrap()
            .iter()
            .map(|g| g["group"].as_str().unwrap())
            .collect();
        assert_eq!(names.len(), 1000);
    });
}

#[test]
fn nonsense_on_the_socket_is_answered_and_does_no_harm() {
    with_namespaces(|| {
        let host = Host::new();
        let daemon = Daemon::start(&host, "");
        for nonsense in [
            &b"\n"[..],
            b"groups\n",
            b"{\"show\":\"all\"}\n",
            &[0xff; 5000],
            b"{",
        ] {
            let mut stream = UnixStream::connect(daemon.socket()).expect("connect");
            // The other side may have closed before it read everything.
            let _ = stream.write_all(nonsense);
            let _ = stream.shutdown(std::net::Shutdown::Write);
            let mut answer = String::new();
            let _ = stream.read_to_string(&mut answer);
            assert!(
                answer.is_empty() || answer.starts_with("{\"error\":"),
                "{answer}"
            );
        }
        // Connections that say nothing do not lock others out for long.
        let idle: Vec<_> = (0..15)
            .map(|_| UnixStream::connect(daemon.socket()).expect("connect"))
            .collect();
        assert!(status::query(&daemon.socket(), Show::Overview).is_ok());
        drop(idle);
    });
}

#[test]
fn metrics_carry_what_the_status_says() {
    with_namespaces(|| {
        let bed = Testbed::new();
        let metrics = "[metrics]\nlisten = \"127.0.0.1:9464\"\n";
        let daemon = Daemon::start(&bed.router, &format!("{metrics}{STATIC_ROUTE}{H1_REPLIES}"));
        daemon.groups(1);
        let h2 = Endpoint::new(&bed.h2, None);
        h2.ask(request(), b"nak");
        daemon.wait_for("packets", "request_turned", 1);
        let page = bed.router.run(|| {
            let mut stream = TcpStream::connect("127.0.0.1:9464").expect("connect");
            let request = "GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
            stream.write_all(request.as_bytes()).expect("ask");
            let mut page = String::new();
            stream.read_to_string(&mut page).expect("page");
            page
        });
        for expected in [
            "lms_router_info{version=\"0.1.0\",source=\"static\",policy=\"static\"} 1",
            "lms_router_groups 1",
            "lms_router_packets_total{verdict=\"request_turned\"} 1",
            "lms_router_drops_total{reason=\"no_entry\"} 0",
            "lms_router_reloads_total{result=\"accepted\"} 0",
            "lms_router_queues_total{event=\"ring_full\"} 0",
            "lms_router_hierarchy_total{event=\"elections\"} 0",
            "lms_router_interface_packets_total{interface=\"one\",kind=\"requests_sent\"} 1",
            "# EOF",
        ] {
            assert!(page.contains(expected), "{expected} is not in\n{page}");
        }
        for metric in METRICS {
            assert!(
                page.contains(&format!("# HELP lms_router_{} ", metric.name)),
                "{}",
                metric.name
            );
        }
        assert_eq!(daemon.status(Show::Overview)["metrics"], "127.0.0.1:9464");
    });
}

#[test]
fn every_metric_is_documented() {
    let manual = include_str!("../../../../docs/manual/metrics.md");
    for metric in METRICS {
        let row = metric.documentation("lms_router");
        assert!(manual.contains(&row), "not in the manual: {row}");
    }
}

#[test]
fn a_service_manager_is_told() {
    with_namespaces(|| {
        let host = Host::new();
        let folder = tempfile::tempdir().expect("folder");
        let at = |name: &str| folder.path().join(name);
        let manager = std::os::unix::net::UnixDatagram::bind(at("notify")).expect("socket");
        manager.set_read_timeout(Some(SOON)).expect("timeout");
        let told = || {
            let mut buffer = [0; 200];
            let len = manager.recv(&mut buffer).expect("told");
            String::from_utf8_lossy(&buffer[..len]).into_owned()
        };
        let config = format!("[daemon]\nsocket = {:?}\n", at("sock"));
        std::fs::write(at("config"), config).expect("file");
        let mut child = host.run(|| {
            Command::new(env!("CARGO_BIN_EXE_lms-router"))
                .args(["run", "--log", "off", "--config"])
                .arg(at("config"))
                .env("NOTIFY_SOCKET", at("notify"))
                .spawn()
                .expect("start")
        });
        assert_eq!(told(), "READY=1");
        let pid = nix::unistd::Pid::from_raw(child.id().cast_signed());
        let signal = |signal| nix::sys::signal::kill(pid, signal).expect("kill");
        signal(nix::sys::signal::Signal::SIGHUP);
        assert!(told().starts_with("RELOADING=1\nMONOTONIC_USEC="));
        assert_eq!(told(), "READY=1");
        signal(nix::sys::signal::Signal::SIGTERM);
        assert_eq!(told(), "STOPPING=1");
        assert!(child.wait().expect("wait").success());
    });
}

#[test]
fn logs_as_json_are_json() {
    with_namespaces(|| {
        let host = Host::new();
        let folder = tempfile::tempdir().expect("folder");
        let socket = folder.path().join("sock");
        let config = folder.path().join("config.toml");
        std::fs::write(&config, format!("[daemon]\nsocket = {socket:?}\n")).expect("file");
        let log = std::fs::File::create(folder.path().join("log")).expect("log");
        let mut child = host.run(|| {
            Command::new(env!("CARGO_BIN_EXE_lms-router"))
                .args(["run", "--log-format", "json", "--config"])
                .arg(&config)
                .stderr(log)
                .spawn()
                .expect("start")
        });
        eventually("it answers", || status::query(&socket, Show::Overview).ok());
        let pid = nix::unistd::Pid::from_raw(child.id().cast_signed());
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).expect("kill");
        assert!(child.wait().expect("wait").success());
        let text = std::fs::read_to_string(folder.path().join("log")).expect("log");
        let lines: Vec<Value> = text
            .lines()
            .map(|line| serde_json::from_str(line).expect("JSON"))
            .collect();
        assert!(
            lines
                .iter()
                .any(|line| line["fields"]["message"] == "running"),
            "{text}"
        );
    });
}
