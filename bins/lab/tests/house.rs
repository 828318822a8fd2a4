//! The dependency arrows of `docs/architecture.md`, held against `cargo metadata`.

use std::collections::BTreeMap;

use cargo_metadata::{DependencyKind, Metadata, MetadataCommand};

const PROTOCOLS: &[&str] = &[
    "igmp",
    "lms-proto",
    "ltp",
    "dyram",
    "ldc-ring",
    "tcpxm",
    "bfed",
    "media",
    "sap",
    "mcp-control",
];

/// What a crate may depend on, of ours, to build and to run.
fn allowed(from: &str, to: &str, from_bins: bool) -> bool {
    match from {
        _ if to == "proto-core" => true,
        "tcpxm-tokio" => ["tcpxm", "linux-net"].contains(&to),
        "mcp-relay" => ["mcp-control", "tcpxm-tokio", "linux-net"].contains(&to),
        "bfed-client" => ["bfed", "linux-net"].contains(&to),
        "bfed-token" | "bfed-external" => to == "bfed",
        "ldc-linux" => ["ldc-ring", "linux-net"].contains(&to),
        "ldc-c" | "ldc-python" => ["ldc-linux", "control-stream"].contains(&to),
        "ltp-linux" => ["ltp", "lms-proto", "dyram", "linux-net"].contains(&to),
        "ltp" => ["lms-proto", "dyram"].contains(&to),
        "lms-proto" => to == "igmp",
        "lms-xdp" => to == "lms-proto",
        "linux-net" => to == "lms-proto",
        "netsim" => false,
        "netlab" => to == "linux-net",
        "sims" => to == "netsim" || PROTOCOLS.contains(&to),
        _ if PROTOCOLS.contains(&from) => false,
        "daemon-kit" => to == "linux-net",
        "control-stream" => to == "mcp-control",
        "cli" => ["daemon-kit", "ltp-linux"].contains(&to),
        "lab" => to != "lab",
        // Neither is built upon: tests of formats, and packages of programs.
        "dissectors" | "packaging" => to != "lab",
        _ if from_bins => {
            PROTOCOLS.contains(&to)
                || [
                    "linux-net",
                    "lms-xdp",
                    "ltp-linux",
                    "tcpxm-tokio",
                    "ldc-linux",
                    "daemon-kit",
                    "control-stream",
                    "mcp-relay",
                    "bfed-client",
                    "bfed-token",
                    "bfed-external",
                    "cli",
                ]
                .contains(&to)
        }
        _ => false,
    }
}

fn metadata() -> Metadata {
    MetadataCommand::new()
        .manifest_path(concat!(env!("CARGO_MANIFEST_DIR"), "/../../Cargo.toml"))
        .no_deps()
        .exec()
        .expect("cargo metadata")
}

#[test]
fn dependencies_run_one_way() {
    let metadata = metadata();
    let ours: BTreeMap<&str, bool> = metadata
        .packages
        .iter()
        .map(|package| {
            let in_bins = package
                .manifest_path
                .components()
                .any(|part| part.as_str() == "bins");
            (package.name.as_str(), in_bins)
        })
        .collect();
    assert!(
        ours.contains_key("lab") && ours.contains_key("lms-proto"),
        "{ours:?}"
    );
    let mut wrong = Vec::new();
    for package in &metadata.packages {
        let from = package.name.as_str();
        for dependency in &package.dependencies {
            let to = dependency.name.as_str();
            if !ours.contains_key(to) {
                continue;
            }
            let fine = match dependency.kind {
                // Tests may use the simulator, networks of namespaces, a browser, keys of TLS, the crate itself with other
                // features, and what it may build on; those of a program also other programs.
                DependencyKind::Development => {
                    ["netsim", "netlab", "headless", "control-stream", from].contains(&to)
                        || allowed(from, to, ours[from])
                        || (ours[from] && ours[to] && to != "lab")
                }
                _ => allowed(from, to, ours[from]),
            };
            if !fine {
                wrong.push(format!("{from} -> {to} ({:?})", dependency.kind));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "arrows that docs/architecture.md does not allow: {}",
        wrong.join(", ")
    );
}

#[test]
fn protocol_crates_know_neither_sockets_nor_tokio() {
    let metadata = metadata();
    let foreign = [
        "tokio",
        "libc",
        "nix",
        "socket2",
        "rustix",
        "mio",
        "quinn-udp",
    ];
    for package in &metadata.packages {
        let name = package.name.as_str();
        if !PROTOCOLS.contains(&name) && name != "netsim" {
            continue;
        }
        for dependency in &package.dependencies {
            let normal = dependency.kind != DependencyKind::Development;
            assert!(
                !(normal && foreign.contains(&dependency.name.as_str())),
                "{name} does I/O: {}",
                dependency.name
            );
        }
    }
}
