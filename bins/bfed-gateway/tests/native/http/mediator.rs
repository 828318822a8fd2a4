//! The mediator of an HTTP network, and edges that ask it.

use bfed::ClientRequest;
use bfed::native::Upcall;
use bfed::wire::client::{Answer, AnswerRepr, Want};
use bfed::wire::no_route::Reason;
use bfed::{ChannelAddress, Cost, Scope};
use bfed_gateway::native::NetworkConfig;

use super::*;

#[test]
fn the_mediator_answers_in_the_body() {
    alone(|| {
        let mut front = mediator(&NetworkConfig::Http(config()));
        let session = name("bfed://9/x");
        let post = |body: &[u8]| {
            let len = body.len();
            let head = format!("POST /mediator HTTP/1.1\r\nHost: x\r\nContent-Length: {len}\r\n");
            Client::ask(MEDIATOR, &head, body)
        };
        let mut asks = [
            post(&request(Want::Cost, 5, &session)),
            post(&request(Want::Join, 6, &session)),
        ];
        for _ in 0..2 {
            let Upcall::Join(ClientRequest {
                client,
                scope: Scope::Chosen,
                cost_only,
                ..
            }) = soon(&mut *front).0
            else {
                panic!();
            };
            let reported = match cost_only {
                true => Answer::Cost(Cost(4)),
                false => {
                    Answer::Translation(vec![ChannelAddress::Native(b"http://h/s/x".to_vec())])
                }
            };
            front.answer(now(), Some(client), &answer(reported, &session));
        }
        let received = asks
            .each_mut()
            .map(|ask| AnswerRepr::parse(ask.all().1).unwrap());
        assert_eq!(
            (received[0].nonce, &received[0].answer),
            (5, &Answer::Cost(Cost(4)))
        );
        assert_eq!((received[1].nonce, received[1].lifetime_s), (6, 100));
        let mut leave = post(&request(Want::Leave, 6, &session));
        assert_eq!(soon(&mut *front).0, Upcall::Leave(session.clone()));
        assert_eq!(leave.all().0, 200);
        assert_eq!(post(b"nonsense").head(), 400);
        let mut newer = request(Want::Join, 7, &session);
        newer[2] = 2;
        let mut refused = post(&newer);
        let (status, body) = refused.all();
        assert_eq!(status, 400);
        let why = String::from_utf8_lossy(body).into_owned();
        assert!(
            why.starts_with("the client speaks version 2 of the"),
            "{why}"
        );
        assert_eq!(post(&[0; 5000]).head(), 413);
        assert_eq!(Client::get(MEDIATOR, "/elsewhere").head(), 404);
        assert_eq!(count(&*front, "requests_malformed"), 1);
        assert_eq!(count(&*front, "requests_other_version"), 1);
    });
}

#[test]
fn a_player_that_knows_the_mediator_alone_is_led_to_an_edge() {
    alone(|| {
        let mut front = mediator(&NetworkConfig::Http(config()));
        for (session, reported, expected) in [
            (
                "bfed://9/x",
                Answer::Translation(vec![ChannelAddress::Native(b"http://h:1/s/x".to_vec())]),
                Ok("http://h:1/s/x".to_owned()),
            ),
            (
                "bfed://7/x",
                Answer::NoRoute(Reason::Local),
                Ok(format!("http://{EDGE}{}", path("bfed://7/x"))),
            ),
            ("bfed://9/y", Answer::NoRoute(Reason::Unreachable), Err(404)),
        ] {
            let mut player = Client::get(MEDIATOR, &path(session));
            let Upcall::Join(ClientRequest { client, .. }) = soon(&mut *front).0 else {
                panic!();
            };
            front.answer(now(), Some(client), &answer(reported, &name(session)));
            match (player.head(), expected) {
                (307, Ok(to)) => assert_eq!(player.location, Some(to)),
                (status, Err(expected)) => assert_eq!(status, expected),
                other => panic!("{other:?}"),
            }
        }
    });
}

#[test]
fn an_edge_asks_the_mediator_for_what_it_has_not() {
    alone(|| {
        let (mut net, mut front) = (edge(), mediator(&NetworkConfig::Http(config())));
        let session = name("bfed://9/x");
        let mut player = Client::get(EDGE, &path("bfed://9/x"));
        let Upcall::Join(ClientRequest {
            client,
            session: wanted,
            ..
        }) = soon(&mut *front).0
        else {
            panic!();
        };
        assert_eq!(wanted, session);
        let (channel, url) = down(&mut *net, &session).unwrap();
        let address = ChannelAddress::Native(url.into_bytes());
        front.answer(
            now(),
            Some(client),
            &answer(Answer::Translation(vec![address]), &session),
        );
        assert_eq!(player.head(), 200);
        net.send_data(now(), channel, b"hello").unwrap();
        assert_eq!(player.until(5), b"hello");
    });
}

/// The control node has a channel allocated while it joins the tree. A player that comes then gets the control
/// node's answer, not a stream that ends at once.
#[test]
fn a_session_that_may_be_refused_is_not_served_before_the_mediator_answers() {
    alone(|| {
        let (mut net, mut front) = (edge(), mediator(&NetworkConfig::Http(config())));
        let session = name("bfed://9/x");
        let (channel, url) = down(&mut *net, &session).unwrap();
        // Both ask at once: one answer serves both.
        let ask = || Client::get(EDGE, &path("bfed://9/x"));
        let mut players = [ask(), ask()];
        let Upcall::Join(ClientRequest { client, .. }) = soon(&mut *front).0 else {
            panic!();
        };
        for _ in 0..100 {
            nothing(&mut *front);
            if count(&*front, "requests_damped") == 1 {
                break;
            }
        }
        let refused = Answer::NoRoute(Reason::Limit);
        front.answer(now(), Some(client), &answer(refused, &session));
        for player in &mut players {
            assert_eq!(player.head(), 503);
            let text = String::from_utf8_lossy(player.all().1).into_owned();
            assert!(text.contains("no route to the session"), "{text}");
        }
        // The next one sends a request again.
        let mut player = ask();
        let Upcall::Join(ClientRequest { client, .. }) = soon(&mut *front).0 else {
            panic!();
        };
        let address = ChannelAddress::Native(url.into_bytes());
        let served = Answer::Translation(vec![address]);
        front.answer(now(), Some(client), &answer(served, &session));
        assert_eq!(player.head(), 200);
        // Once data has arrived no player sends a request.
        net.send_data(now(), channel, b"hello").unwrap();
        assert_eq!(player.until(5), b"hello");
        assert_eq!(ask().head(), 200);
        nothing(&mut *front);
    });
}
