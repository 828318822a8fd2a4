//! Source-specific multicast.

use std::net::SocketAddr;
use std::time::Duration as StdDuration;

use bfed::ClientRequest;
use bfed::native::{NativeError, Upcall};
use bfed::wire::client::{Answer, AnswerRepr, Want};
use bfed::wire::no_route::Reason;
use bfed::wire::notification::Repr as Notification;
use bfed::{ChannelAddress, Scope, SessionName};
use bfed_gateway::native::{
    ClientLimits, Groups, GroupsConfig, Link, MulticastConfig, NetworkConfig, SapConfig,
};

use crate::common::*;

pub(crate) const MEDIATOR: &str = "127.0.0.1:25190";

pub(crate) fn config() -> NetworkConfig {
    NetworkConfig::Ssm(MulticastConfig {
        data: GroupsConfig {
            link: Link {
                interface: Some("lo".into()),
                ..Link::default()
            },
            groups: Groups::parse("232.98.0.0/24").unwrap(),
            port: 6000,
            export: vec!["232.0.0.0/8".parse().unwrap()],
        },
        mediator: MEDIATOR.parse().unwrap(),
        sap: SapConfig::default(),
        limits: ClientLimits::default(),
        cost: None,
    })
}

#[test]
fn only_the_source_of_a_channel_is_heard() {
    alone(|| {
        let mut net = channels(&config());
        let channel = up(&mut *net, &name("bfed://7/127.0.0.2@232.1.2.3/5004")).unwrap();
        let group: SocketAddr = ([232, 1, 2, 3], 5004).into();
        Host::bound(([127, 0, 0, 1], 0).into()).send(group, b"forged");
        Host::bound(([127, 0, 0, 2], 0).into()).send(group, b"genuine");
        assert_eq!(
            soon(&mut *net),
            (Upcall::Data { channel, len: 7 }, b"genuine".to_vec())
        );
        nothing(&mut *net);
        for wrong in [
            "bfed://7/232.1.2.3/5004",
            "bfed://7/127.0.0.2@10.1.2.3/5004",
        ] {
            assert_eq!(up(&mut *net, &name(wrong)), Err(NativeError::NoSession));
        }
    });
}

#[test]
fn channels_are_this_hosts_address_and_a_group() {
    alone(|| {
        let mut net = channels(&config());
        let (channel, address) = down(&mut *net, &name("bfed://9/x")).unwrap();
        assert_eq!(address, "127.0.0.1@232.98.0.0:6000");
        let source = Some("127.0.0.1".parse().unwrap());
        let mut host = Host::in_group(([232, 98, 0, 0], 6000).into(), source);
        Host::bound(([127, 0, 0, 2], 0).into()).send(([232, 98, 0, 0], 6000).into(), b"forged");
        net.send_data(now(), channel, b"hello").unwrap();
        net.flush(now());
        assert_eq!(host.receive(5000), [b"hello"]);
        // No host of the network could send to it (§5.1).
        let many = name("bfed://9/x/?multi-source=true");
        assert_eq!(down(&mut *net, &many), Err(NativeError::Refused));
    });
}

fn padded(want: Want, nonce: u32, session: &SessionName) -> Vec<u8> {
    let mut bytes = request(want, nonce, session);
    bytes.resize(1200, 0);
    bytes
}

#[test]
fn clients_ask_by_unicast_and_leave_one_by_one() {
    alone(|| {
        let mut front = mediator(&config());
        let session = name("bfed://9/x");
        let clients = [stranger("127.0.0.1:0"), stranger("127.0.0.1:0")];
        let address = ChannelAddress::Native(b"127.0.0.1@232.98.0.0:6000".to_vec());
        let translation = answer(Answer::Translation(vec![address]), &session);
        for (nonce, client) in (5..).zip(&clients) {
            client
                .set_read_timeout(Some(StdDuration::from_secs(20)))
                .unwrap();
            client
                .send_to(&padded(Want::Join, nonce, &session), MEDIATOR)
                .unwrap();
            let Upcall::Join(ClientRequest {
                client: id,
                scope: Scope::Chosen,
                ..
            }) = soon(&mut *front).0
            else {
                panic!();
            };
            front.answer(now(), Some(id), &translation);
            let mut buffer = [0; 2000];
            let len = client.recv(&mut buffer).unwrap();
            let received = AnswerRepr::parse(&buffer[..len]).unwrap();
            assert_eq!(
                (received.nonce, &received.answer),
                (nonce, &translation.answer)
            );
        }
        // Another host cannot leave on their behalf: neither from another address nor without their nonce.
        stranger("127.0.0.1:0")
            .send_to(&padded(Want::Leave, 5, &session), MEDIATOR)
            .unwrap();
        clients[0]
            .send_to(&padded(Want::Leave, 99, &session), MEDIATOR)
            .unwrap();
        clients[0]
            .send_to(&padded(Want::Leave, 5, &session), MEDIATOR)
            .unwrap();
        nothing(&mut *front);
        clients[1]
            .send_to(&padded(Want::Leave, 6, &session), MEDIATOR)
            .unwrap();
        assert_eq!(soon(&mut *front).0, Upcall::Leave(session));
    });
}

#[test]
fn all_who_have_a_session_are_told_of_its_end() {
    alone(|| {
        let mut front = mediator(&config());
        let session = name("bfed://9/x");
        let client = stranger("127.0.0.1:0");
        client
            .set_read_timeout(Some(StdDuration::from_secs(20)))
            .unwrap();
        client
            .send_to(&padded(Want::Join, 5, &session), MEDIATOR)
            .unwrap();
        let Upcall::Join(ClientRequest { client: id, .. }) = soon(&mut *front).0 else {
            panic!();
        };
        let address = ChannelAddress::Native(b"127.0.0.1@232.98.0.0:6000".to_vec());
        front.answer(
            now(),
            Some(id),
            &answer(Answer::Translation(vec![address]), &session),
        );
        front.answer(
            now(),
            None,
            &answer(Answer::NoRoute(Reason::Unreachable), &session),
        );
        let mut buffer = [0; 2000];
        client.recv(&mut buffer).unwrap();
        let len = client.recv(&mut buffer).unwrap();
        let received = AnswerRepr::parse(&buffer[..len]).unwrap();
        assert_eq!(
            (received.nonce, received.answer),
            (5, Answer::NoRoute(Reason::Unreachable))
        );
    });
}

#[test]
fn no_answer_is_longer_than_the_datagram_that_asked() {
    alone(|| {
        let mut front = mediator(&config());
        let session = name("bfed://9/x");
        let client = stranger("127.0.0.1:0");
        client
            .set_read_timeout(Some(StdDuration::from_millis(50)))
            .unwrap();
        // Not padded: what would draw a longer answer to a forged address draws none.
        client
            .send_to(&request(Want::Join, 5, &session), MEDIATOR)
            .unwrap();
        let Upcall::Join(ClientRequest { client: id, .. }) = soon(&mut *front).0 else {
            panic!();
        };
        let address = ChannelAddress::Native(b"127.0.0.1@232.98.0.0:6000".to_vec());
        front.answer(
            now(),
            Some(id),
            &answer(Answer::Translation(vec![address]), &session),
        );
        assert!(client.recv(&mut [0; 2000]).is_err());
        assert_eq!(count(&*front, "answers_longer_than_request"), 1);
        // Padding is zeros: nothing else rides on a request.
        let mut odd = padded(Want::Join, 6, &session);
        odd[1199] = 1;
        client.send_to(&odd, MEDIATOR).unwrap();
        nothing(&mut *front);
        assert_eq!(count(&*front, "requests_malformed"), 1);
        // Nor is a refusal, of a client of another version.
        let mut newer = request(Want::Join, 7, &session);
        newer[2] = 2;
        client.send_to(&newer, MEDIATOR).unwrap();
        nothing(&mut *front);
        assert!(client.recv(&mut [0; 2000]).is_err());
        let mut newer = padded(Want::Join, 7, &session);
        newer[2] = 2;
        client.send_to(&newer, MEDIATOR).unwrap();
        nothing(&mut *front);
        let mut buffer = [0; 2000];
        let len = client.recv(&mut buffer).unwrap();
        let why = Notification::parse(&buffer[..len]).unwrap();
        assert!(
            why.text.starts_with("the client speaks version 2"),
            "{}",
            why.text
        );
        assert_eq!(count(&*front, "requests_other_version"), 2);
    });
}
