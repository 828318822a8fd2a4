//! URLs, and paths of sessions.

use bfed_client::{Url, parse_session_path, session_path};

#[test]
fn urls() {
    let url: Url = "http://10.0.0.1:8080/a/b".parse().unwrap();
    assert_eq!(url.to_string(), "http://10.0.0.1:8080/a/b");
    assert_eq!(url.server(), "10.0.0.1:8080");
    assert_eq!(url.follow("/c").unwrap().path(), "/c");
    for (text, server) in [
        ("http://[::1]", "[::1]:80"),
        ("http://[::1]:8/", "[::1]:8"),
        ("http://h/x?y", "h:80"),
    ] {
        assert_eq!(text.parse::<Url>().unwrap().server(), server);
    }
    for wrong in [
        "https://x/",
        "x",
        "http://",
        "http:///x",
        "http://:80/",
        "http://u@h/",
        "http://h/a b",
        "http://h/\r\n",
    ] {
        assert!(wrong.parse::<Url>().is_err(), "{wrong}");
    }
}

#[test]
fn paths_of_sessions_make_the_round_trip() {
    let name = "bfed://7/talk/1/2/?a=b%20c";
    for flow in [0, 1, 15] {
        let path = session_path(name, flow);
        assert_eq!(parse_session_path(&path), Some((name.to_owned(), flow)));
    }
    for wrong in [
        "/", "/s", "/x/a", "/s/a/0", "/s/a/b", "/s/%", "/s/%f", "/s/%zz", "/s/%ff", "/s/a/1/2",
    ] {
        assert_eq!(parse_session_path(wrong), None, "{wrong}");
    }
}
