//! Two networks whose native network is the example `examples/external/chat.py`, joined by two gateways.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::common::*;

const ROOM: &str = "bfed://1/lobby/?multi-source=true";

/// The program of a network; killed when dropped.
struct Chat(Child);

impl Chat {
    fn start(gateway: &Daemon, listen: SocketAddr) -> Chat {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/external");
        let mut command = Command::new("python3");
        command.arg(folder.join("chat.py")).arg("--directory");
        command.arg(gateway.folder.path().join("external"));
        command.arg("--listen").arg(listen.to_string());
        command.env("PYTHONDONTWRITEBYTECODE", "1");
        Chat(command.spawn().unwrap())
    }
}

impl Drop for Chat {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A member of a room.
struct Member(BufReader<TcpStream>);

impl Member {
    fn enter(chat: SocketAddr, room: &str) -> Member {
        let stream = eventually("the chat", || TcpStream::connect(chat).ok());
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        let mut member = Member(BufReader::new(stream));
        member.say(room);
        member
    }

    fn say(&mut self, line: &str) {
        let line = format!("{line}\n");
        self.0.get_mut().write_all(line.as_bytes()).unwrap();
    }

    fn hear(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }
}

fn has_python() -> bool {
    let found = Command::new("python3")
        .arg("--version")
        .stdout(Stdio::null())
        .status();
    let found = found.is_ok_and(|status| status.success());
    if !found {
        netlab::lacks_program(env!("CARGO_PKG_NAME"), "python3");
    }
    found
}

/// Two gateways with external networks.
fn gateways() -> [Daemon; 2] {
    let at = [port(), port()];
    let start = |own: usize| {
        let folder = tempfile::tempdir().unwrap();
        let directory = folder.path().join("external");
        let rest = format!(
            "[network]\nkind = \"external\"\ndirectory = {directory:?}\n{}",
            peer(2 - own as u32, at[1 - own])
        );
        let text = text(&folder, own as u32 + 1, &listen(at[own]), &rest);
        write(&folder, &text);
        Daemon::again("run", folder)
    };
    let gateways = [start(0), start(1)];
    gateways.iter().for_each(Daemon::peered);
    gateways
}

/// Says lines until the other member hears one: before that, the room is still being joined.
fn meet(speaker: &mut Member, listener: &mut Member) {
    let stream = listener.0.get_ref();
    let short = std::time::Duration::from_millis(200);
    stream.set_read_timeout(Some(short)).unwrap();
    eventually("a line", || {
        speaker.say("hello?");
        let mut line = String::new();
        let heard = listener.0.read_line(&mut line).is_ok();
        (heard && line.contains("hello?")).then_some(())
    });
    let stream = listener.0.get_ref();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
}

/// The next line that is not one of [`meet`].
fn line(member: &mut Member) -> String {
    loop {
        match member.hear() {
            line if line.contains("hello?") => {}
            line => return line,
        }
    }
}

#[test]
fn members_of_a_room_in_two_networks_read_each_other() {
    if !has_python() {
        return;
    }
    let gateways = gateways();
    let chats = [port(), port()];
    let _first = Chat::start(&gateways[0], chats[0]);
    let second = Chat::start(&gateways[1], chats[1]);
    let mut owner = Member::enter(chats[0], ROOM);
    let mut guest = Member::enter(chats[1], ROOM);
    meet(&mut owner, &mut guest);
    guest.say("from network 2");
    assert_eq!(line(&mut owner), "from network 2");
    owner.say("from network 1");
    assert_eq!(line(&mut guest), "from network 1");

    // The program is killed, and another one takes its place.
    drop(second);
    let _third = Chat::start(&gateways[1], chats[1]);
    let mut guest = Member::enter(chats[1], ROOM);
    meet(&mut owner, &mut guest);
    guest.say("again");
    assert_eq!(line(&mut owner), "again");
    let log = gateways[1].log();
    for event in ["external_connected", "external_lost"] {
        assert!(log.contains(event), "{event}: {log}");
    }
}
