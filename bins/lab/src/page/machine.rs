//! The machine that measured, and the versions of the tools that were compared.

use std::process::{Command, Stdio};

/// Debian packages that scenarios compare with or depend on, where they are installed.
const PEERS: &[&str] = &[
    "uftp",
    "udpcast",
    "libnorm1",
    "haproxy",
    "iperf3",
    "smcroute",
    "frr",
    "etcd-server",
];

/// Names and values, in the order shown.
pub(super) fn describe() -> Vec<(&'static str, String)> {
    let cpu = field("/proc/cpuinfo", "model name", ':').unwrap_or_else(|| "unknown".to_owned());
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let memory = field("/proc/meminfo", "MemTotal", ':')
        .and_then(|text| text.trim_end_matches("kB").trim().parse::<f64>().ok())
        .map_or_else(String::new, |kb| format!("{:.1} GiB", kb / 1_048_576.0));
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let system = field("/etc/os-release", "PRETTY_NAME", '=').unwrap_or_default();
    let build = match cfg!(debug_assertions) {
        true => "debug: speeds mean nothing",
        false => "release",
    };
    let date = Command::new("date")
        .args(["-u", "+%Y-%m-%d %H:%M UTC"])
        .output();
    let date = date.map_or_else(
        |_| String::new(),
        |output| String::from_utf8_lossy(&output.stdout).trim().to_owned(),
    );
    let mut all = vec![
        ("drawn", date),
        ("processor", format!("{cpu}, {cores} cores")),
        ("memory", memory),
        ("kernel", kernel.trim().to_owned()),
        ("system", system.trim_matches('"').to_owned()),
        (
            "polycast",
            format!("{}, {build} build", env!("CARGO_PKG_VERSION")),
        ),
    ];
    if let Some(peers) = peers() {
        all.push(("beside us", peers));
    }
    all
}

/// The value of the first line that starts with a key.
fn field(path: &str, key: &str, separator: char) -> Option<String> {
    let text = std::fs::read_to_string(path).ok()?;
    let line = text.lines().find(|line| line.starts_with(key))?;
    Some(line.split_once(separator)?.1.trim().to_owned())
}

fn peers() -> Option<String> {
    let output = Command::new("dpkg-query")
        .args(["-W", "-f", "${Package} ${Version}, "])
        .args(PEERS)
        .stderr(Stdio::null())
        .output()
        .ok()?;
    let text = String::from_utf8_lossy(&output.stdout);
    // A package that is not installed has no version.
    let there = text
        .split(", ")
        .filter(|entry| entry.contains(' ') && !entry.ends_with(' '));
    let there: Vec<&str> = there.collect();
    (!there.is_empty()).then(|| there.join(", "))
}
