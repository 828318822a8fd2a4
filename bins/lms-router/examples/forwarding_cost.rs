//! What one packet costs: a sender that never rests on core 0, the router on core 1, the paper's
//! testbed out of namespaces between them (LMS Table 6.1). As root:
//!
//! ```text
//! cargo run --release -p lms-router --example forwarding_cost -- request|dmcast|kernel|none [SECONDS] [WAIT_FOR_PROFILER]
//! ```
//!
//! `kernel` is the baseline: the kernel forwards the same stream to one receiver by itself. `none`
//! is what sender and arrival cost where nobody forwards: subtract it from the others' processor
//! time, which does not depend on what else the machine does.

#[path = "../tests/common/mod.rs"]
mod common;

use std::io::Read;
use std::net::Ipv4Addr;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::*;
use linux_net::link;
use linux_net::mroute::{Route, Table};
use linux_net::packet::{Sender, group_link_address};
use lms_proto::Form;
use lms_router::status::{self, Show};

fn main() -> std::process::ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    if arguments.get(1).is_some_and(|a| a == "run") {
        return lms_router::main_from(arguments.into_iter().map(Into::into));
    }
    let kind = arguments
        .get(1)
        .map_or("request", String::as_str)
        .to_owned();
    let seconds = arguments.get(2).and_then(|s| s.parse().ok()).unwrap_or(5);
    let bed = Testbed::new();
    let folder = tempfile::tempdir().expect("folder");
    let socket = folder.path().join("sock");
    let _table = (kind == "kernel").then(|| kernel(&bed));
    let routed = kind == "request" || kind == "dmcast";
    let router = routed.then(|| start(&bed, &folder));
    let number = |name: &str| {
        let interfaces = status::query(&socket, Show::Interfaces).expect("status");
        let all = interfaces["interfaces"].as_array().expect("list").clone();
        let found = all.iter().find(|i| i["name"] == name).expect("interface");
        lms_proto::Iface(found["number"].as_u64().expect("number") as u16)
    };
    let (host, near, packet) = match kind.as_str() {
        "kernel" | "none" => (&bed.src, "up", data_packet(SRC, GROUP, 9, &[0; 64])),
        "request" => {
            let mut option = [0; 16];
            request().emit(Form::Classic, &mut option).expect("option");
            let udp = &data_packet(H2, GROUP, 9, &[0; 64])[20..];
            (&bed.h2, "two", ipv4(17, H2, GROUP, 9, &option, udp))
        }
        "dmcast" => {
            let inner = data_packet(SRC, GROUP, 9, &[0; 64]);
            let to = Ipv4Addr::new(10, 0, 2, 1);
            (&bed.h1, "one", dmcast(H1, to, number("two"), &inner))
        }
        other => panic!("{other}: write request, dmcast, kernel or none"),
    };
    let link = match kind.as_str() {
        "dmcast" => Testbed::link_address(&bed.router, near),
        _ => group_link_address(GROUP),
    };
    if let (Some(child), Some(_)) = (&router, arguments.get(3)) {
        println!("perf record -g -p {}; then Enter", child.id());
        let _ = std::io::stdin().read(&mut [0]);
    }
    let received = |host: &Host| {
        let file = "/sys/class/net/eth/statistics/rx_packets";
        let command = host.command(
            "sh",
            &[
                "-c",
                &format!("mount -t sysfs s /sys 2>/dev/null; cat {file}"),
            ],
        );
        String::from_utf8_lossy(&command.stdout)
            .trim()
            .parse::<u64>()
            .unwrap_or(0)
    };
    let target = if kind == "dmcast" { &bed.h2 } else { &bed.h1 };
    let router_before = router.as_ref().map_or(0.0, |child| tasks(child.id()));
    let softirq_before = ksoftirqd();
    let before = received(target);
    let start = Instant::now();
    let (sent, sender_cpu) = host.run(|| blast(link, &packet, Duration::from_secs(seconds)));
    let elapsed = start.elapsed().as_secs_f64();
    std::thread::sleep(Duration::from_millis(100));
    let passed = received(target) - before;
    let router_cpu = router.as_ref().map_or(0.0, |child| tasks(child.id())) - router_before;
    let softirq_cpu = ksoftirqd() - softirq_before;
    println!(
        "{kind}: {sent} sent, {passed} forwarded in {elapsed:.2} s: {:.0} packets/s",
        passed as f64 / elapsed
    );
    let each = |cpu: f64| 1e6 * cpu / sent as f64;
    println!(
        "processor time a packet: sender {:.3} us, router {:.3} us, ksoftirqd {:.3} us, all {:.3} us",
        each(sender_cpu),
        each(router_cpu),
        each(softirq_cpu),
        each(sender_cpu + router_cpu + softirq_cpu)
    );
    if router.is_some() {
        let counters = status::query(&socket, Show::Counters).expect("status");
        println!("{}\n{}", counters["packets"], counters["queues"]);
    }
    if let Some(mut child) = router {
        let _ = child.kill();
        let _ = child.wait();
    }
    std::process::ExitCode::SUCCESS
}

/// Sends until the time is over; answers how many, and the processor time it took.
fn blast(link: [u8; 6], packet: &[u8], time: Duration) -> (u64, f64) {
    let sender = Sender::open().expect("sender");
    let eth = link::find("eth").expect("eth").index;
    let pid = nix::unistd::Pid::from_raw(0);
    let mut set = nix::sched::CpuSet::new();
    set.set(0)
        .and_then(|()| nix::sched::sched_setaffinity(pid, &set))
        .expect("pin");
    let own = std::path::Path::new("/proc/thread-self/schedstat");
    let before = run_time(own);
    let (start, mut sent) = (Instant::now(), 0);
    while start.elapsed() < time {
        let mut batch = sender.batch();
        for _ in 0..64 {
            batch.queue(eth, link, packet);
        }
        sent += batch.flush().sent;
    }
    (sent, run_time(own) - before)
}

fn start(bed: &Testbed, folder: &tempfile::TempDir) -> Child {
    let at = |name: &str| folder.path().join(name);
    let config = format!(
        "{STATIC_ROUTE}{H1_REPLIES}[limits]\nrequests-per-second = 10000000\ndmcasts-per-second = 10000000\n\
         group-requests-per-second = 10000000\ngroup-dmcasts-per-second = 10000000\n\
         [daemon]\ncpu = 1\nsocket = {:?}\n",
        at("sock")
    );
    std::fs::write(at("config"), config).expect("configuration");
    let child = bed.router.run(|| {
        Command::new(std::env::current_exe().expect("path"))
            .args(["run", "--config"])
            .arg(at("config"))
            .args(["--log", "warn"])
            .stdin(Stdio::null())
            .spawn()
            .expect("start")
    });
    eventually("the router answers", || {
        status::query(&at("sock"), Show::Groups).ok()
    });
    std::thread::sleep(Duration::from_secs(2));
    child
}

/// Seconds that a task ran, from its `schedstat`.
fn run_time(file: &std::path::Path) -> f64 {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    text.split(' ')
        .next()
        .and_then(|ns| ns.parse::<f64>().ok())
        .unwrap_or(0.0)
        / 1e9
}

/// The same for all threads of a process.
fn tasks(pid: u32) -> f64 {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("tasks");
    tasks
        .map(|task| run_time(&task.expect("task").path().join("schedstat")))
        .sum()
}

/// The same for the kernel's threads that do what interrupts leave over.
fn ksoftirqd() -> f64 {
    let processes = std::fs::read_dir("/proc").expect("proc").flatten();
    let is = |path: &std::path::Path| {
        std::fs::read_to_string(path.join("comm")).is_ok_and(|name| name.starts_with("ksoftirqd"))
    };
    let paths = processes
        .map(|process| process.path())
        .filter(|path| is(path));
    paths.map(|path| run_time(&path.join("schedstat"))).sum()
}

/// The kernel forwards (SRC, GROUP) from `up` to `one`.
fn kernel(bed: &Testbed) -> Table {
    let (up, one) = (bed.router.index("up"), bed.router.index("one"));
    bed.router.run(|| {
        let mut table = Table::open().expect("multicast routing");
        table.add_interface(up).expect("interface");
        table.add_interface(one).expect("interface");
        let route = Route {
            source: SRC,
            group: GROUP,
            input: up,
            outputs: vec![one],
        };
        table.set_route(&route).expect("route");
        table
    })
}
