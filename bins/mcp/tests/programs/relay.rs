//! Hosts that relay to hosts, over loopback without multicast.

use crate::common::{Running, Stage, names};

const MIB: usize = 1 << 20;

/// Without multicast links feed all hosts.
const UNICAST: [&str; 2] = ["--mode", "unicast"];

#[track_caller]
fn expect_copy(stage: &Stage, receiver: u8, file: &std::path::Path) {
    let copy = std::fs::read(stage.dir(receiver).join("image")).expect("a copy");
    assert!(copy == std::fs::read(file).expect("the file"), "{receiver}");
    assert_eq!(names(&stage.dir(receiver)), ["image"]);
}

#[test]
fn hosts_pass_a_file_on_and_the_sender_sends_it_once() {
    let stage = Stage::new();
    let key = stage.key("key");
    let key = ["--key-file", key.to_str().expect("text")];
    let file = stage.content("image", 40 * MIB + 77);
    let receivers = [1, 2, 3, 4];
    let _running: Vec<Running> = receivers.map(|receiver| stage.start(receiver, &key)).into();
    let done = stage.copy(&file, &receivers, &[&key[..], &UNICAST].concat());
    done.expect(0);
    for receiver in receivers {
        expect_copy(&stage, receiver, &file);
        done.line(&[
            "\"feeder\"",
            &format!("\"host\":\"{}", stage.address(receiver)),
        ]);
        done.line(&["\"verified\"", &stage.address(receiver)]);
    }
    let end = done.line(&["\"event\":\"end\""]);
    assert!(end.contains("\"bypassed\":[]"), "{end}");
    assert_eq!(done.number(&["\"event\":\"end\""], "relayed"), 4);
    assert_eq!(
        done.number(&["\"event\":\"end\""], "fed_bytes"),
        (40 * MIB + 77) as u64
    );
}

#[test]
fn a_folder_of_small_files_with_parts_there_already() {
    let stage = Stage::new();
    let tree = stage.path("image");
    std::fs::create_dir(&tree).expect("made");
    for file in 0..300 {
        let bytes = crate::common::content(20_000 + file);
        std::fs::write(tree.join(format!("{file}")), bytes).expect("written");
    }
    let _running: Vec<Running> = [1, 2, 3].map(|receiver| stage.start(receiver, &[])).into();
    // The second has everything already, and feeds nobody: it is not part of the data.
    stage.copy(&tree, &[2], &UNICAST).expect(0);
    std::fs::write(tree.join("100"), b"changed").expect("written");
    let done = stage.copy(&tree, &[1, 2, 3], &UNICAST);
    done.expect(0);
    for receiver in [1, 2, 3] {
        for file in 0..300 {
            let copied = std::fs::read(stage.dir(receiver).join(format!("image/{file}")));
            let own = std::fs::read(tree.join(format!("{file}"))).expect("the file");
            assert!(copied.expect("a copy") == own, "{receiver} {file}");
        }
    }
    assert_eq!(done.number(&["\"event\":\"end\""], "relayed"), 3);
}

#[test]
fn a_host_that_dies_is_bypassed_and_the_others_go_on() {
    let stage = Stage::new();
    let file = stage.content("image", 96 * MIB);
    let receivers = [1, 2, 3, 4];
    let mut running: Vec<Running> = receivers.map(|receiver| stage.start(receiver, &[])).into();
    let options = [&UNICAST[..], &["--rate", "300M", "--retries", "0"]].concat();
    let mut copy = Running::start(&mut stage.send(&file, &receivers, &options));
    // The second in the chain, whichever that is: the host that the first one feeds.
    let first = feeder_event(&mut copy, "\"feeder\":null");
    let second = feeder_event(&mut copy, &format!("\"feeder\":\"{first}\""));
    copy.wait_for(&["\"progress\"", &second, "\"held\":1"]);
    let at = receivers
        .iter()
        .position(|&receiver| stage.address(receiver) == second);
    drop(running.remove(at.expect("one of them")));
    let done = copy.finish();
    done.expect(3);
    for receiver in receivers
        .into_iter()
        .filter(|&r| stage.address(r) != second)
    {
        expect_copy(&stage, receiver, &file);
    }
    done.line(&["\"feeder\"", "\"reason\":\"died\""]);
    done.line(&["\"failed\"", &second]);
    // What the others had was not sent again: a few blocks were on their way.
    let fed = done.number(&["\"event\":\"end\""], "fed_bytes");
    assert!(fed < (96 + 40) * MIB as u64, "{fed}");
}

/// Waits for the event of a host that this feeder feeds; returns the host.
fn feeder_event(copy: &mut Running, feeder: &str) -> String {
    let line = copy.wait_for(&["\"event\":\"feeder\"", feeder]);
    let rest = line.split_once("\"host\":\"").expect("a host").1;
    rest.split_once('"').expect("quoted").0.to_owned()
}

#[test]
fn without_relay_on_either_side_hosts_feed_none() {
    let stage = Stage::new();
    let file = stage.content("image", 8 * MIB);
    let receivers = [1, 2, 3];
    let _running: Vec<Running> = receivers
        .map(|receiver| stage.start(receiver, &["--no-relay"]))
        .into();
    // They feed none, so that the sender feeds all of them over links.
    let done = stage.copy(&file, &receivers, &UNICAST);
    done.expect(0);
    let fed = done.number(&["\"event\":\"end\""], "fed_bytes");
    assert_eq!(fed, 3 * 8 * MIB as u64);
    std::fs::remove_file(stage.dir(1).join("image")).expect("removed");
    std::fs::remove_file(stage.dir(2).join("image")).expect("removed");
    let done = stage.copy(&file, &receivers, &[&UNICAST[..], &["--no-relay"]].concat());
    done.expect(0);
    assert_eq!(done.number(&["\"event\":\"end\""], "relayed"), 0);
    assert_eq!(done.number(&["\"event\":\"end\""], "fed_bytes"), 0);
    for receiver in receivers {
        expect_copy(&stage, receiver, &file);
    }
}
