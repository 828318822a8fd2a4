//! Start, exit codes, and an ordinary life without warnings.

use std::net::TcpListener;
use std::process::Command;

use bfed_gateway::status::Show;
use nix::sys::signal::Signal;

use crate::common::*;

#[test]
fn check_and_wrong_usage_have_their_exit_codes() {
    let folder = tempfile::tempdir().unwrap();
    write(&folder, &text(&folder, 1, "", ""));
    let fine = program(&["check"], &folder).output().unwrap();
    assert_eq!(fine.status.code(), Some(0));
    assert!(String::from_utf8_lossy(&fine.stdout).contains("no problems"));
    for mode in ["control", "data"] {
        let missing = program(&[mode], &folder).output().unwrap();
        assert_eq!(missing.status.code(), Some(2));
        let said = String::from_utf8_lossy(&missing.stderr).into_owned();
        assert!(
            said.contains(":1:1: cluster.") && said.contains("is missing"),
            "{said}"
        );
    }
    write(&folder, "[gateway]\nnetwork = 1\nnumbr = 2\n");
    let wrong = program(&["check"], &folder).output().unwrap();
    assert_eq!(wrong.status.code(), Some(2));
    let said = String::from_utf8_lossy(&wrong.stderr).into_owned();
    assert!(
        said.contains("gateway.toml:3:1: gateway.numbr: is unknown; did you mean number?"),
        "{said}"
    );
    let usage = Command::new(env!("CARGO_BIN_EXE_bfed-gateway"))
        .arg("sing")
        .output()
        .unwrap();
    assert_eq!(usage.status.code(), Some(2));
}

#[test]
fn what_cannot_be_opened_ends_the_program_with_a_sentence() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = taken.local_addr().unwrap();
    let folder = tempfile::tempdir().unwrap();
    for (gateway, rest, said) in [
        (listen(at), String::new(), "gateway.listen"),
        (
            "key-file = \"/nowhere\"".to_owned(),
            String::new(),
            "gateway.key-file",
        ),
        (
            String::new(),
            format!("[metrics]\nlisten = \"{at}\""),
            "metrics.listen",
        ),
    ] {
        write(&folder, &text(&folder, 1, &gateway, &rest));
        let failed = program(&["run"], &folder).output().unwrap();
        assert_eq!(failed.status.code(), Some(1));
        let error = String::from_utf8_lossy(&failed.stderr).into_owned();
        assert!(error.contains(said), "{error}");
    }
}

#[test]
fn an_ordinary_start_and_stop_logs_no_warning() {
    for more in [
        "",
        "[network]\nkind = \"http\"\nlisten = \"127.0.0.1:0\"\nmediator = \"127.0.0.1:0\"\n",
    ] {
        let at = [port(), port()];
        let start = |own: usize| {
            let rest = format!("{}{more}", peer(2 - own as u32, at[1 - own]));
            Daemon::start("run", own as u32 + 1, &listen(at[own]), &rest)
        };
        // The first calls the second before it is there.
        let (one, other) = (start(0), start(1));
        one.peered();
        other.peered();
        let ends = [other.end(Signal::SIGTERM), one.end(Signal::SIGTERM)];
        for (code, folder) in ends {
            no_warning(&folder);
            assert_eq!(code, Some(0));
        }
    }
}

#[test]
fn a_data_node_that_starts_before_its_control_node_logs_no_warning() {
    let call = port();
    let cluster = format!("first-node = 5\n[cluster]\ncontrol = [\"{call}\"]\n");
    let data = Daemon::start("data", 1, "", &cluster);
    let control = Daemon::start(
        "control",
        1,
        "",
        &format!("[cluster]\nlisten = \"{call}\"\n"),
    );
    eventually("the data node", || {
        (control.show(Show::Overview)["nodes"] == 1).then_some(())
    });
    assert!(data.log().contains("waiting for the control node"));
    no_warning(&data.end(Signal::SIGTERM).1);
    eventually("its end", || {
        (control.show(Show::Overview)["nodes"] == 0).then_some(())
    });
    assert!(control.log().contains("drained data node left"));
    assert_eq!(control.show(Show::Counters)["control"]["nodes_lost"], 0);
    no_warning(&control.folder);
}
