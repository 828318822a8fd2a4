//! The demo and the lab's links as a user starts them: as the user that runs the tests and, when that is root,
//! as an ordinary user too. Where namespaces are forbidden the tests say so and pass.

use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The user `nobody` on every distribution.
const ORDINARY: u32 = 65_534;

fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}

/// The program, where an ordinary user may start it.
fn program() -> (PathBuf, tempfile::TempDir) {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().expect("folder");
    let copy = folder.path().join("lab");
    std::fs::copy(env!("CARGO_BIN_EXE_lab"), &copy).expect("copy");
    for path in [folder.path(), &copy] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755))
            .expect("permissions");
    }
    (copy, folder)
}

fn lab(program: &Path, user: Option<u32>, args: &[&str]) -> Output {
    let mut command = Command::new(program);
    command.args(args).current_dir("/");
    if let Some(user) = user {
        command.uid(user).gid(user);
    }
    patiently(|| command.output())
}

/// Another test's child may hold the fresh copy open for writing until it has become its own program.
fn patiently<T>(mut start: impl FnMut() -> std::io::Result<T>) -> T {
    for _ in 0..100 {
        match start() {
            Err(error) if error.kind() == std::io::ErrorKind::ExecutableFileBusy => {
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
            started => return started.expect("start lab"),
        }
    }
    panic!("the copied program stays busy");
}

/// Whether namespaces are permitted to this user; says so when they are not.
fn permitted(program: &Path, user: Option<u32>) -> bool {
    let output = lab(program, user, &["__probe"]);
    if !output.status.success() {
        let why = String::from_utf8_lossy(&output.stderr);
        netlab::skip("lab", why.trim());
    }
    output.status.success()
}

fn users() -> Vec<Option<u32>> {
    if is_root() {
        vec![None, Some(ORDINARY)]
    } else {
        vec![None]
    }
}

fn succeeds(output: &Output) {
    let (out, err) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    // Remarks and missed checks say why; a long report may be cut where this is shown.
    let why = |line: &&str| line.starts_with("- ") || line.starts_with("  MISSED");
    let why = out.lines().filter(why).collect::<Vec<_>>().join("\n");
    assert!(output.status.success(), "{}\n{why}\n{err}", output.status);
}

/// Scenarios take turns: side by side they would measure each other.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A scenario, as every user; what depends on the machine's speed is not for a machine that runs tests.
fn holds(scenario: &str) {
    let _alone = alone();
    let (program, _folder) = program();
    for user in users() {
        if permitted(&program, user) {
            let run = ["run", scenario, "--quick", "--quiet", "--untimed"];
            succeeds(&lab(&program, user, &run));
        }
    }
}

#[test]
fn the_demo_delivers_to_every_receiver() {
    let _alone = alone();
    let (program, _folder) = program();
    for user in users() {
        if !permitted(&program, user) {
            continue;
        }
        let output = lab(&program, user, &["demo", "--quick", "--json", "--quiet"]);
        succeeds(&output);
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        assert_eq!(report["verdict"], "met");
        let receivers = report["data"]["outcome"]["receivers"]
            .as_array()
            .expect("receivers");
        assert_eq!(receivers.len(), 4);
        assert!(
            receivers.iter().all(|receiver| receiver["whole"] == true),
            "{receivers:?}"
        );
    }
}

#[test]
fn the_demos_of_ldc_and_the_federation_end_with_a_result() {
    let _alone = alone();
    let (program, _folder) = program();
    for user in users() {
        if permitted(&program, user) {
            for system in ["ldc", "bfed"] {
                let options = ["--quick", "--quiet", "--untimed"];
                let output = lab(&program, user, &[&["demo", system], &options[..]].concat());
                // That of the federation needs curl, and says so.
                let has_curl = Command::new("curl").arg("--version").output().is_ok();
                if has_curl || output.status.code() != Some(4) {
                    succeeds(&output);
                }
            }
        }
    }
}

/// udpcast never ends: the scenario continues without it and reports that.
#[test]
fn a_tool_that_hangs_is_shown_as_failed() {
    let _alone = alone();
    let (program, folder) = program();
    if !permitted(&program, None) {
        return;
    }
    for name in ["udp-sender", "udp-receiver"] {
        use std::os::unix::fs::PermissionsExt;
        let path = folder.path().join(name);
        std::fs::write(&path, "#!/bin/sh\nexec /bin/sleep 1000\n").expect("script");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755))
            .expect("permissions");
    }
    let mut command = Command::new(&program);
    command
        .args([
            "run",
            "ltp-throughput",
            "--quick",
            "--quiet",
            "--untimed",
            "--json",
        ])
        .args(["--settings", "plain", "--mib", "1", "--rounds", "3"])
        .env("PATH", folder.path());
    let output = patiently(|| command.output());
    assert_eq!(
        output.status.code(),
        Some(4),
        "what could be judged without the machine's speed was skipped: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let skipped = report["skipped"].as_array().expect("skipped");
    let reason = |name: &str| {
        let of = |part: &&serde_json::Value| part["name"].as_str().unwrap().contains(name);
        let part = skipped
            .iter()
            .find(of)
            .unwrap_or_else(|| panic!("{name}: {skipped:?}"));
        part["reason"].as_str().unwrap().to_owned()
    };
    assert_eq!(
        reason("udpcast"),
        "failed: udp-sender did not end within 20s"
    );
    let rows = report["tables"][0]["rows"].as_array().expect("rows");
    let row = rows.iter().find(|row| row[0] == "udpcast");
    assert_eq!(row.expect("a row for udpcast")[1], "failed");
}

#[test]
fn emulated_links_do_what_they_are_asked() {
    holds("lab-links");
}

#[test]
fn the_engine_and_the_kernel_s_tcp_understand_each_other() {
    holds("tcpxm-kernel-interop");
}

#[test]
fn a_session_reaches_islands_of_every_kind() {
    holds("bfed-islands");
}

#[test]
fn a_film_plays_two_hops_away() {
    holds("live");
}

#[test]
fn trees_go_around_networks_that_refuse_transit() {
    holds("bfed-policy");
}

#[test]
fn sessions_of_a_data_node_that_dies_flow_again() {
    holds("bfed-node-crash");
}

#[test]
fn the_networks_of_a_lab_that_is_killed_are_gone() {
    let _alone = alone();
    let (program, folder) = program();
    if !permitted(&program, None) {
        return;
    }
    let mut command = Command::new(&program);
    command
        .args(["run", "lab-links", "--quick", "--quiet"])
        .stdout(std::process::Stdio::null());
    let mut child = patiently(|| command.spawn());
    std::thread::sleep(std::time::Duration::from_millis(1_500));
    child.kill().expect("kill -9");
    child.wait().expect("end");
    // Processes of the copied program are left over; the kernel takes a moment to end them all.
    let left = || {
        let processes = std::fs::read_dir("/proc").expect("/proc").flatten();
        let runs = processes.filter(|entry| {
            std::fs::read_link(entry.path().join("exe"))
                .is_ok_and(|exe| exe.starts_with(folder.path()))
        });
        runs.count()
    };
    for _ in 0..100 {
        if left() == 0 {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    panic!("{} processes are left over", left());
}

#[test]
fn what_cannot_be_is_told_before_the_run() {
    let (program, _folder) = program();
    let run = |args: &[&str]| {
        let output = lab(&program, None, args);
        assert!(output.stdout.is_empty(), "it has run");
        let words = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code(), words)
    };
    let (code, words) = run(&["run", "lab-links", "--quick", "--out", "/proc/self/report"]);
    assert_eq!(code, Some(1), "{words}");
    assert!(words.contains("create /proc/self/report"), "{words}");
    let (code, words) = run(&["run", "lms-recovery", "--quick", "--loss", "much"]);
    assert_eq!(code, Some(2), "{words}");
    assert!(
        words.contains("--loss") && words.contains("much"),
        "{words}"
    );
    let (code, words) = run(&["run", "lms-tree", "--quick", "--owner", "nobody"]);
    assert_eq!(code, Some(2), "{words}");
    assert!(
        words.contains("--owner") && words.contains("nobody"),
        "{words}"
    );
    if permitted(&program, None) && is_root() {
        let folder = tempfile::tempdir_in("/run").expect("folder");
        let out = folder.path().to_str().expect("UTF-8");
        let (code, words) = run(&["run", "lab-links", "--quick", "--out", out]);
        assert_eq!(code, Some(2), "{words}");
        assert!(words.contains("gone with the sandbox"), "{words}");
    }
}

#[test]
fn list_names_every_scenario_with_its_needs() {
    let (program, _folder) = program();
    let output = lab(&program, None, &["list", "--json"]);
    succeeds(&output);
    let list: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let names: Vec<&str> = list
        .as_array()
        .expect("list")
        .iter()
        .filter_map(|entry| entry["name"].as_str())
        .collect();
    for name in [
        "lms-scenarios",
        "lms-tree",
        "lms-replier-failure",
        "lms-forwarding-cost",
    ] {
        assert!(names.contains(&name), "{names:?}");
    }
}
