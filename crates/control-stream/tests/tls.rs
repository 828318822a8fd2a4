//! Authentication: handshakes in memory, with secrets and with certificates.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use control_stream::tls::{Credentials, Proof, explain, write_new_secret};
use rustls::{ClientConnection, Connection, ServerConnection};

/// Runs a handshake until both ends are done or one has refused.
fn handshake(client: &Credentials, server: &Credentials, host: &str) -> Result<(), rustls::Error> {
    ends(client, server, host).map(drop)
}

/// Returns both ends after their handshake.
fn ends(
    client: &Credentials,
    server: &Credentials,
    host: &str,
) -> Result<[Connection; 2], rustls::Error> {
    let name = client.server_name(host).expect("a name");
    let client = ClientConnection::new(client.client.clone(), name).expect("a client");
    let server = ServerConnection::new(server.server.clone()).expect("a server");
    let mut ends: [Connection; 2] = [client.into(), server.into()];
    for _ in 0..10 {
        for at in 0..2 {
            let mut bytes = Vec::new();
            while ends[at].wants_write() {
                ends[at].write_tls(&mut bytes).expect("memory");
            }
            let mut bytes = &bytes[..];
            while !bytes.is_empty() {
                ends[1 - at].read_tls(&mut bytes).expect("memory");
                ends[1 - at].process_new_packets()?;
            }
        }
    }
    assert!(ends.iter().all(|end| !end.is_handshaking()));
    assert_eq!(
        ends[0].protocol_version(),
        Some(rustls::ProtocolVersion::TLSv1_3)
    );
    Ok(ends)
}

fn keys() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/keys")
}

fn pem(name: &str) -> Credentials {
    let bytes = std::fs::read(keys().join(name)).expect("a key file");
    Credentials::from_pem(&bytes).expect("credentials")
}

fn secret(byte: u8) -> Credentials {
    Credentials::from_secret(&[byte; 32]).expect("credentials")
}

#[test]
fn who_has_the_secret_may_connect() {
    handshake(&secret(1), &secret(1), "anything").expect("the same secret");
}

/// Returns what the server of `ends` knows about the client.
fn proof(server: &Credentials, ends: [Connection; 2]) -> Proof {
    let [_, server_end] = ends;
    match server_end {
        Connection::Server(end) => server.proof(&end),
        Connection::Client(_) => unreachable!("the second end listens"),
    }
}

#[test]
fn a_caller_is_who_its_certificate_says_and_nobody_else() {
    let (client, server) = (pem("client.pem"), pem("server.pem"));
    let whole = ends(&server, &server, "server.example").expect("a handshake");
    let caller = proof(&server, whole);
    caller.is_for("server.example").expect("its name");
    caller.is_for("127.0.0.1").expect("its address");
    let error = caller.is_for("other.example").expect_err("another's name");
    assert!(error.contains("for another host"), "{error}");
    let whole = ends(&client, &server, "server.example").expect("a handshake");
    proof(&server, whole)
        .is_for("server.example")
        .expect_err("a client's certificate");
    // A holder of the secret may use any name.
    let (one, other) = (secret(1), secret(1));
    let whole = ends(&one, &other, "anything").expect("a handshake");
    proof(&other, whole)
        .is_for("whoever.example")
        .expect("no names");
}

#[test]
fn another_secret_is_refused() {
    let refused = handshake(&secret(1), &secret(2), "anything").expect_err("another secret");
    let text = explain(&std::io::Error::other(refused));
    assert_eq!(text, "has another key");
}

#[test]
fn certificates_of_one_authority_are_accepted() {
    handshake(&pem("client.pem"), &pem("server.pem"), "server.example").expect("by name");
    handshake(&pem("client.pem"), &pem("server.pem"), "127.0.0.1").expect("by address");
}

#[test]
fn a_certificate_for_another_host_is_refused() {
    let wrong = handshake(&pem("client.pem"), &pem("server.pem"), "other.example");
    let text = explain(&std::io::Error::other(wrong.expect_err("another name")));
    assert!(text.contains("for another host"), "{text}");
}

#[test]
fn a_certificate_that_nobody_takes_is_refused_where_it_is_read() {
    let expired = std::fs::read(keys().join("expired.pem")).expect("a key file");
    let error = Credentials::from_pem(&expired).expect_err("expired");
    assert!(error.contains("has expired"), "{error}");
    // The authority of another host, behind this host's certificate.
    let text = |name: &str| std::fs::read_to_string(keys().join(name)).expect("a key file");
    let certificate = |text: &str, at: usize| {
        let end = "-----END CERTIFICATE-----\n";
        text.split_inclusive(end).nth(at).expect("one").to_owned()
    };
    let (server, stranger) = (text("server.pem"), text("stranger.pem"));
    let key = server.split("-----END CERTIFICATE-----\n").last();
    let mixed = [
        certificate(&server, 0),
        certificate(&stranger, 1),
        key.expect("a key").to_owned(),
    ];
    let error = Credentials::from_pem(mixed.concat().as_bytes()).expect_err("mixed");
    assert!(error.contains("not from the authority"), "{error}");
}

#[test]
fn a_stranger_is_refused_by_either_side() {
    let (client, server, stranger) = (pem("client.pem"), pem("server.pem"), pem("stranger.pem"));
    assert!(handshake(&stranger, &server, "127.0.0.1").is_err());
    assert!(handshake(&client, &stranger, "127.0.0.1").is_err());
}

#[test]
fn a_secret_and_certificates_do_not_mix() {
    assert!(handshake(&secret(1), &pem("server.pem"), "127.0.0.1").is_err());
    assert!(handshake(&pem("client.pem"), &secret(1), "127.0.0.1").is_err());
}

#[test]
fn a_new_secret_is_its_owners_alone() {
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("key");
    write_new_secret(&path).expect("written");
    let mode = std::fs::metadata(&path).expect("file").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(std::fs::read(&path).expect("file").len(), 65);
    let read = Credentials::read(&path).expect("credentials");
    handshake(&read, &read, "anything").expect("the same file");
    assert!(write_new_secret(&path).is_err(), "an older key is kept");
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o644)).expect("chmod");
    let error = Credentials::read(&path).expect_err("open to all");
    assert!(error.contains("chmod o="), "{error}");
}

#[test]
fn what_is_no_key_is_refused() {
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("key");
    for text in ["", "short", "-----BEGIN CERTIFICATE-----\n"] {
        std::fs::write(&path, text).expect("written");
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).expect("chmod");
        assert!(Credentials::read(&path).is_err(), "{text:?}");
    }
}
