//! Starting, reloading, ending: what an operator does to a router.

use std::cell::RefCell;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use crate::common::*;
use linux_net::nft::{Guard, GuardError};
use lms_router::status::{self, Show};
use serde_json::Value;

/// Whether a router's guard stands on a host.
fn guarded(host: &Host) -> bool {
    match host.run(|| Guard::open(None)) {
        Ok(_) => false,
        Err(GuardError::Exists) => true,
        Err(error) => panic!("{error}"),
    }
}

fn configuration(overview: &Value) -> &Value {
    &overview["configuration"]
}

/// How many packet sockets the network of a host has that see whole frames of either version of IP.
fn frame_sockets(host: &Host) -> usize {
    let table = host.run(|| std::fs::read_to_string("/proc/thread-self/net/packet"));
    let is_frames = |line: &&str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (kind, protocol) = (fields.get(2), fields.get(3));
        kind == Some(&"3") && matches!(protocol, Some(&("0800" | "86dd")))
    };
    table.expect("table").lines().filter(is_frames).count()
}

#[test]
fn the_backend_of_the_capture_is_chosen() {
    with_namespaces(|| {
        let (bed, counts) = (Testbed::new(), RefCell::new(Vec::new()));
        on_each_backend(|| {
            let daemon = Daemon::start(&bed.router, STATIC_ROUTE);
            daemon.groups(1);
            counts.borrow_mut().push(frame_sockets(&bed.router));
        });
        assert_eq!(
            counts.take(),
            [0, 0, 0, 6],
            "one for each interface and version of IP"
        );
    });
}

#[test]
fn a_reload_changes_routes_repliers_and_limits() {
    with_namespaces(|| {
        let bed = Testbed::new();
        let daemon = Daemon::start(&bed.router, &format!("{STATIC_ROUTE}{H1_REPLIES}"));
        assert_eq!(daemon.groups(1)[0]["replier"]["neighbour"], "10.0.2.2");
        let [src, h1, h2] = bed.endpoints(None);
        // H2 becomes the replier, a second route comes.
        let more = "[[route]]\nsource = \"*\"\ngroup = \"239.9.9.9\"\nupstream = \"up\"\ndownstream = []\n";
        let replies = H1_REPLIES
            .replace("\"one\"", "\"two\"")
            .replace("10.0.2.2", "10.0.3.2");
        let overview = daemon.reload(&format!("{STATIC_ROUTE}{more}{replies}"));
        assert_eq!(configuration(&overview)["reloads"], 1);
        assert_eq!(
            configuration(&overview)["needs_restart"],
            Value::Array(vec![])
        );
        let groups = daemon.groups(2);
        let first = groups
            .as_array()
            .unwrap()
            .iter()
            .find(|group| group["source"] == "10.0.1.2");
        assert_eq!(first.unwrap()["replier"]["neighbour"], "10.0.3.2");
        h1.ask(request(), b"nak");
        assert!(
            h2.heard(SOON)
                .expect("H2 replies now")
                .option
                .turning_point
                .is_some()
        );
        h2.ask(request(), b"nak");
        assert_eq!(src.heard(SOON).expect("to the source").option, request());
        // A policy without repliers, and no second route.
        let overview = daemon.reload(STATIC_ROUTE);
        assert_eq!(overview["policy"], "hierarchy");
        assert!(daemon.groups(1)[0]["replier"].is_null());
    });
}

#[test]
fn a_bad_reload_is_rejected_whole_and_shown() {
    with_namespaces(|| {
        let bed = Testbed::new();
        let daemon = Daemon::start(&bed.router, &format!("{STATIC_ROUTE}{H1_REPLIES}"));
        let groups = daemon.groups(1);
        let bad = "[limits]\ngroups = 0\n[source]\nkind = \"static\"\n";
        let overview = daemon.reload(bad);
        let error = configuration(&overview)["last_error"]
            .as_str()
            .expect("why")
            .to_owned();
        assert!(error.ends_with("config.toml:2:10: limits.groups: 0 is too small; write a whole number from 1 to 1000000"), "{error}");
        assert_eq!(configuration(&overview)["rejected"], 1);
        assert_eq!(daemon.groups(1), groups, "everything is as before");
        assert!(
            daemon
                .log()
                .contains("configuration rejected, the old one stays")
        );
        // The next good one clears it.
        let overview = daemon.reload(&format!("{STATIC_ROUTE}{H1_REPLIES}"));
        assert!(configuration(&overview)["last_error"].is_null());
        // A file that is not there is a bad one too.
        std::fs::remove_file(daemon.folder.path().join("config.toml")).expect("remove");
        daemon.signal(nix::sys::signal::Signal::SIGHUP);
        eventually("it is rejected", || {
            let overview = daemon.status(Show::Overview);
            (configuration(&overview)["rejected"] == 2).then_some(())
        });
    });
}

#[test]
fn what_a_reload_cannot_change_is_said() {
    with_namespaces(|| {
        let bed = Testbed::new();
        let daemon = Daemon::start(&bed.router, STATIC_ROUTE);
        let next =
            format!("[limits]\ngroups = 7\n[metrics]\nlisten = \"127.0.0.1:0\"\n{STATIC_ROUTE}");
        let overview = daemon.reload(&next);
        let waiting = &configuration(&overview)["needs_restart"];
        assert_eq!(
            *waiting,
            serde_json::json!(["metrics.listen", "limits.groups"])
        );
        assert!(
            daemon
                .log()
                .contains("these keys keep their value until a restart")
        );
    });
}

#[test]
fn a_second_instance_is_refused_with_a_reason() {
    with_namespaces(|| {
        let bed = Testbed::new();
        let daemon = Daemon::start(&bed.router, STATIC_ROUTE);
        // The same status socket.
        let output = bed.h1.run(|| {
            Command::new(PROGRAM)
                .args(["run", "--config"])
                .arg(daemon.folder.path().join("config.toml"))
                .output()
                .expect("run")
        });
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1));
        assert!(
            said.contains("another lms-router is running with this status socket"),
            "{said}"
        );
        // Another socket, the same network.
        let folder = tempfile::tempdir().expect("folder");
        let (code, said) = Daemon::refused(&bed.router, STATIC_ROUTE, folder);
        assert_eq!(code, 1);
        assert!(
            said.contains("another lms-router runs in this network namespace"),
            "{said}"
        );
        daemon.groups(1);
    });
}

#[test]
fn sigterm_and_sigint_leave_nothing_behind() {
    with_namespaces(|| {
        use nix::sys::signal::Signal;
        let bed = Testbed::new();
        for signal in [Signal::SIGTERM, Signal::SIGINT] {
            let daemon = Daemon::start(&bed.router, STATIC_ROUTE);
            assert!(guarded(&bed.router));
            let mode = std::fs::metadata(daemon.socket())
                .expect("socket")
                .permissions()
                .mode();
            assert_eq!(mode & 0o777, 0o660);
            let (status, folder) = daemon.stop_by(signal);
            assert!(status.success());
            assert!(!guarded(&bed.router));
            let left = std::fs::read_dir(folder.path()).expect("folder");
            let mut left: Vec<_> = left.map(|file| file.expect("file").file_name()).collect();
            left.sort();
            assert_eq!(left, ["config.toml", "log"]);
        }
    });
}

#[test]
fn kill_9_leaves_no_guard_and_the_stale_socket_is_replaced() {
    with_namespaces(|| {
        let bed = Testbed::new();
        let daemon = Daemon::start(&bed.router, STATIC_ROUTE);
        assert!(guarded(&bed.router));
        let folder = daemon.kill();
        let stale = std::fs::symlink_metadata(folder.path().join("sock")).expect("stale socket");
        assert!(stale.file_type().is_socket());
        eventually("the guard is gone", || {
            (!guarded(&bed.router)).then_some(())
        });
        let daemon = Daemon::start_in(&bed.router, STATIC_ROUTE, folder);
        daemon.groups(1);
    });
}

#[test]
fn a_socket_that_another_program_listens_on_is_left_alone() {
    with_namespaces(|| {
        let folder = tempfile::tempdir().expect("folder");
        let socket = folder.path().join("sock");
        let other = std::os::unix::net::UnixListener::bind(&socket).expect("listen");
        let (code, said) = Daemon::refused(&Host::new(), "", folder);
        assert_eq!(code, 1);
        assert!(said.contains("another program listens here"), "{said}");
        // One connection waits, the router's; the socket was not replaced.
        other.accept().expect("accept");
    });
}

#[test]
fn a_neighbour_named_by_a_reload_alone_is_served_by_multicast_and_said_to_wait() {
    with_namespaces(|| {
        let bed = Testbed::new();
        let daemon = Daemon::start(&bed.router, STATIC_ROUTE);
        let overview = daemon.reload(&format!("{STATIC_ROUTE}{H1_REPLIES}"));
        let waiting = &configuration(&overview)["needs_restart"];
        assert_eq!(*waiting, serde_json::json!(["replier.static.neighbour"]));
        let (h1, h2) = (Endpoint::new(&bed.h1, None), Endpoint::new(&bed.h2, None));
        h2.ask(request(), b"nak");
        assert_eq!(h1.heard(SOON).expect("on the whole link").payload, b"nak");
        assert_eq!(daemon.counter("queues", "unresolved_neighbour"), 1);
    });
}

#[test]
fn a_file_that_is_no_socket_is_left_alone() {
    with_namespaces(|| {
        let host = Host::new();
        let folder = tempfile::tempdir().expect("folder");
        let file = folder.path().join("sock");
        std::fs::write(&file, "precious").expect("file");
        let (code, said) = {
            let config = format!("[daemon]\nsocket = {file:?}\n");
            let path = folder.path().join("config.toml");
            std::fs::write(&path, config).expect("configuration");
            let output = host.run(|| {
                Command::new(PROGRAM)
                    .args(["run", "--config"])
                    .arg(&path)
                    .output()
                    .expect("run")
            });
            (
                output.status.code(),
                String::from_utf8_lossy(&output.stderr).into_owned(),
            )
        };
        assert_eq!(code, Some(1));
        assert!(said.contains("exists and is not a socket"), "{said}");
        assert_eq!(std::fs::read_to_string(&file).expect("file"), "precious");
    });
}

/// A value of `/proc/PID/status`.
fn proc_status(pid: u32, key: &str) -> String {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("status");
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(key))
        .expect("key");
    line.trim_start_matches(':').trim().to_owned()
}

#[test]
fn privileges_are_given_up_and_what_is_left_suffices() {
    with_namespaces(|| {
        let bed = Testbed::new();
        let daemon = Daemon::start(&bed.router, STATIC_ROUTE);
        for set in ["CapEff", "CapPrm", "CapBnd", "CapAmb"] {
            assert_eq!(proc_status(daemon.pid(), set), "0000000000000000", "{set}");
        }
        assert_eq!(proc_status(daemon.pid(), "NoNewPrivs"), "1");
        assert_eq!(
            daemon.status(Show::Overview)["capabilities"],
            Value::Array(vec![])
        );
        drop(daemon);
        // Finding a static replier's link address out takes one.
        let daemon = Daemon::start(&bed.router, &format!("{STATIC_ROUTE}{H1_REPLIES}"));
        assert_eq!(proc_status(daemon.pid(), "CapEff"), "0000000000001000");
        assert_eq!(
            daemon.status(Show::Overview)["capabilities"][0],
            "CAP_NET_ADMIN"
        );
    });
}

#[test]
fn an_ordinary_user_runs_it_in_a_user_namespace() {
    let folder = tempfile::tempdir().expect("folder");
    let everybody = std::fs::Permissions::from_mode(0o777);
    std::fs::set_permissions(folder.path(), everybody).expect("permissions");
    let (config, socket) = (
        folder.path().join("config.toml"),
        folder.path().join("sock"),
    );
    std::fs::write(
        &config,
        format!("[daemon]\nsocket = {socket:?}\nsocket-mode = \"0666\"\n"),
    )
    .expect("configuration");
    let as_user = |program: &str, arguments: &[&str]| {
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null());
        if nix::unistd::geteuid().is_root() {
            command.uid(65534).gid(65534);
        }
        command
    };
    let namespaces = as_user("unshare", &["-Urn", "true"])
        .stderr(Stdio::null())
        .status();
    if !namespaces.is_ok_and(|status| status.success()) {
        netlab::skip("lms-router", "user namespaces are not permitted here");
        return;
    }
    let config = config.to_str().expect("path");
    let mut child = as_user("unshare", &["-Urn", PROGRAM, "run", "--config", config])
        .spawn()
        .expect("start");
    let overview = eventually("it answers", || {
        assert!(child.try_wait().expect("wait").is_none(), "it ended");
        status::query(&socket, Show::Overview).ok()
    });
    assert_eq!(
        (&overview["source"], &overview["guard"]),
        (&"kernel".into(), &true.into())
    );
    let pid = nix::unistd::Pid::from_raw(child.id().cast_signed());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).expect("kill");
    assert!(child.wait().expect("wait").success());
    assert!(!socket.exists());
}

#[test]
fn without_privileges_it_says_what_it_needs() {
    let folder = tempfile::tempdir().expect("folder");
    let everybody = std::fs::Permissions::from_mode(0o777);
    std::fs::set_permissions(folder.path(), everybody).expect("permissions");
    let config = folder.path().join("config.toml");
    let socket = folder.path().join("sock");
    std::fs::write(&config, format!("[daemon]\nsocket = {socket:?}\n")).expect("configuration");
    let mut command = Command::new(PROGRAM);
    command.args(["run", "--config"]).arg(&config);
    if nix::unistd::geteuid().is_root() {
        command.uid(65534).gid(65534);
    }
    let output = command.output().expect("run");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1));
    assert!(said.contains("needs CAP_NET_"), "{said}");
    assert!(!socket.exists());
}

#[test]
fn check_and_status_from_the_command_line() {
    let run = |arguments: &[&str]| {
        let output = Command::new(PROGRAM).args(arguments).output().expect("run");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (
            output.status.code().expect("code"),
            text(&output.stdout),
            text(&output.stderr),
        )
    };
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/lms-router.toml");
    let (code, said, _) = run(&["check", "--config", example]);
    assert_eq!((code, said), (0, format!("{example}: no problems\n")));
    let folder = tempfile::tempdir().expect("folder");
    let bad = folder.path().join("bad.toml");
    std::fs::write(&bad, "[limits]\ngroups = 0\ngrups = 1\n").expect("file");
    let bad = bad.to_str().expect("path");
    let (code, _, said) = run(&["check", "--config", bad]);
    let expected = format!(
        "{bad}:2:10: limits.groups: 0 is too small; write a whole number from 1 to 1000000\n\
         {bad}:3:1: limits.grups: is unknown; did you mean groups?\n"
    );
    assert_eq!((code, said), (2, expected));
    let (code, _, said) = run(&["check", "--config", "/nonexistent/x.toml"]);
    assert_eq!(
        (code, said.as_str()),
        (
            2,
            "/nonexistent/x.toml: No such file or directory (os error 2); a commented example is \
             /etc/polycast/lms-router.toml (package) or bins/lms-router/lms-router.toml (source)\n"
        )
    );
    let (code, _, said) = run(&["status", "--socket", "/nonexistent/sock"]);
    assert_eq!(code, 1);
    assert!(
        said.contains("no lms-router answers here; is it running"),
        "{said}"
    );
    assert_eq!(run(&["status", "nonsense"]).0, 2);
    assert_eq!(run(&[]).0, 2);
    let (code, help, _) = run(&["--help"]);
    assert_eq!(code, 0);
    assert!(
        help.contains("SIGHUP") && help.contains("Exit codes"),
        "{help}"
    );
}
