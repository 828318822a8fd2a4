//! Authentication by certificates in both programs, and their messages when one is refused.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

use crate::common::{Finished, Running, Stage, names};

struct Certificates {
    stage: Stage,
    mcpd: Running,
    port: u64,
}

impl Certificates {
    /// A mcpd that has a certificate for 127.0.0.1.
    fn start() -> Certificates {
        let stage = Stage::new();
        let key = key(&stage, "server.pem");
        let mut command = Command::new(crate::common::mcpd());
        command
            .args(["--json", "--listen", "127.0.0.1:0", "--key-file"])
            .arg(key)
            .arg("--dir")
            .arg(stage.dir(1));
        let mut mcpd = Running::start(&mut command);
        let line = mcpd.wait_for(&["\"listening\"", "\"secure\":true"]);
        let address = line.split("127.0.0.1:").nth(1).expect("an address");
        let port = address.split('"').next().and_then(|port| port.parse().ok());
        Certificates {
            stage,
            mcpd,
            port: port.expect("a port"),
        }
    }

    fn send(&self, host: &str, key_file: &str) -> Finished {
        let file = self.stage.content("image", 1000);
        let mut command = Command::new(crate::common::mcp());
        command
            .args(["--json", "--key-file"])
            .arg(key(&self.stage, key_file))
            .arg(file)
            .arg(format!("{host}:{}", self.port));
        Running::start(&mut command).finish()
    }
}

/// A key file that only its owner may read.
fn key(stage: &Stage, name: &str) -> PathBuf {
    let from =
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../crates/control-stream/tests/keys");
    let to = stage.path(name);
    std::fs::copy(from.join(name), &to).expect("copied");
    std::fs::set_permissions(&to, PermissionsExt::from_mode(0o600)).expect("chmod");
    to
}

#[test]
fn certificates_of_one_authority_may_copy() {
    let mut pair = Certificates::start();
    let done = pair.send("127.0.0.1", "client.pem");
    done.expect(0);
    assert!(done.line(&["\"started\""]).contains("\"sealed\":true"));
    assert_eq!(names(&pair.stage.dir(1)), ["image"]);
    pair.mcpd.wait_for(&["\"copied\""]);
}

#[test]
fn a_certificate_that_is_refused_is_named_with_the_reason() {
    let mut pair = Certificates::start();
    // The host is called by a name that its certificate does not have.
    let done = pair.send("localhost", "client.pem");
    let failed = done.expect(4).line(&["\"failed\"", "\"permission\""]);
    assert!(failed.contains("is for another host"), "{failed}");
    // The sender does not know the host's authority, nor the host the sender's.
    let done = pair.send("127.0.0.1", "stranger.pem");
    let failed = done.expect(4).line(&["\"failed\"", "\"permission\""]);
    assert!(failed.contains("not from the authority"), "{failed}");
    // Reported before any connection is made.
    let done = pair.send("127.0.0.1", "expired.pem");
    done.expect(1).says("has expired");
    let mut refused = 0;
    while refused < 2 {
        pair.mcpd.wait_for(&["\"refused\""]);
        refused += 1;
    }
    assert_eq!(names(&pair.stage.dir(1)), [""; 0]);
}

#[test]
fn a_sender_whose_authority_is_unknown_there_learns_it() {
    // This side's file has the right authority behind the wrong certificate: it takes the host's, and
    // is through with its own handshake before the host has looked at this one.
    let mut pair = Certificates::start();
    let (own, other) = (
        key(&pair.stage, "stranger.pem"),
        key(&pair.stage, "client.pem"),
    );
    let text = |path| std::fs::read_to_string(path).expect("read");
    let end = "-----END CERTIFICATE-----\n";
    let (own, other) = (text(own), text(other));
    let mut parts = own.split_inclusive(end);
    let own_certificate = parts.next().expect("a certificate");
    let own_authority = parts.next().expect("an authority");
    let own_key = parts.next().expect("a key");
    let authority = other.split_inclusive(end).nth(1).expect("an authority");
    // Its own chain is whole, so that this side has nothing to say about it.
    let mixed = [own_certificate, own_authority, authority, own_key].concat();
    let path = pair.stage.path("mixed.pem");
    std::fs::write(&path, mixed).expect("written");
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).expect("chmod");
    let file = pair.stage.content("image", 1000);
    let mut command = Command::new(crate::common::mcp());
    command
        .arg("--key-file")
        .arg(&path)
        .arg(&file)
        .arg(format!("127.0.0.1:{}", pair.port));
    let done = Running::start(&mut command).finish();
    // The last certificate is the authority: the first is not from it.
    done.expect(1).says("not from the authority");

    // A client without a certificate is refused, too.
    let secret = pair.stage.key("secret");
    let mut command = Command::new(crate::common::mcp());
    command
        .arg("--key-file")
        .arg(&secret)
        .arg(&file)
        .arg(format!("127.0.0.1:{}", pair.port));
    let done = Running::start(&mut command).finish();
    done.expect(4).says("another kind");
    pair.mcpd.wait_for(&["\"refused\""]);
}
