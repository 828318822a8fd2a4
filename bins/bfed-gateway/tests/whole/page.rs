//! The status page, by hand and in a browser.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;

use bfed::wire::notification::{Reason, Repr as Notification};
use bfed_gateway::config::Mode;
use bfed_gateway::status::Show;

use super::forward::{BULK, DATA, frames, join};
use super::{Gateway, eventually, port, support};

/// Hostile text: the name of a session, and the notification of a peer.
const HOSTILE_NAME: &str = "bfed://1/fake/%3Cimg%20src=x%20onerror=document.title='owned'%3E/";
const HOSTILE_WORDS: &str = "</td></script><img src=x onerror=\"document.title='owned'\">";

/// Two gateways, the first with a page and a peer whose session has ended.
fn gateways() -> (Gateway, Gateway, SocketAddr) {
    let at = [port(), port()];
    let more = format!("{DATA}\n[status]\npage = \"127.0.0.1:0\"\n[[peer]]\nnetwork = 3\n");
    let one = Gateway::start(Mode::Whole, 0, &at, &[1], &more);
    let other = Gateway::start(Mode::Whole, 1, &at, &[0], DATA);
    one.peered(1);
    other.peered(1);
    let open = support::open(3, 90);
    let words = Notification::new(Reason::Shutdown, HOSTILE_WORDS);
    let mut bytes = vec![0; open.buffer_len() + words.buffer_len()];
    let (first, last) = bytes.split_at_mut(open.buffer_len());
    open.emit(first);
    words.emit(last);
    let mut stream = TcpStream::connect(at[0]).unwrap();
    stream.write_all(&bytes).unwrap();
    eventually("the last words", || {
        let peers = one.show(Show::Peers);
        let mut all = peers["peers"].as_array()?.iter();
        all.any(|peer| {
            peer["last_end"]
                .as_str()
                .is_some_and(|end| end.contains("<img"))
        })
        .then_some(())
    });
    let page = one.show(Show::Overview)["page"]
        .as_str()
        .unwrap()
        .parse()
        .unwrap();
    (one, other, page)
}

fn get(at: SocketAddr, path: &str, host: &str) -> String {
    let mut stream = TcpStream::connect(at).unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn the_page_needs_nothing_from_outside_and_runs_no_script_but_its_own() {
    let at = port();
    let one = Gateway::start(
        Mode::Whole,
        0,
        &[at],
        &[],
        &format!("{DATA}\n[status]\npage = \"127.0.0.1:0\""),
    );
    let page: SocketAddr = one.show(Show::Overview)["page"]
        .as_str()
        .unwrap()
        .parse()
        .unwrap();
    let host = page.to_string();
    let answer = get(page, "/", &host);
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(
        head.contains("200 OK") && head.contains("default-src 'none'"),
        "{head}"
    );
    let nonce = head
        .split("script-src 'nonce-")
        .nth(1)
        .unwrap()
        .split('\'')
        .next()
        .unwrap();
    assert!(body.contains(&format!("<script nonce=\"{nonce}\">")));
    assert!(
        !get(page, "/", &host).contains(nonce),
        "the same nonce twice"
    );
    let outside = body.replace("http://www.w3.org/2000/svg", "");
    assert!(
        !outside.contains("http:") && !outside.contains("https:") && !body.contains("innerHTML")
    );
    let data = get(page, "/data", &host);
    for part in ["overview", "viewers", "hops"] {
        assert!(data.contains(&format!("\"{part}\":")), "{part}: {data}");
    }
    for path in ["/", "/data"] {
        assert!(get(page, path, "evil.example").starts_with("HTTP/1.1 403"));
    }
    assert!(get(page, "/else", &host).starts_with("HTTP/1.1 404"));
}

#[test]
fn a_flood_of_requests_asks_the_gateway_once_a_second() {
    let at = port();
    let more = format!("{DATA}\n[status]\npage = \"127.0.0.1:0\"");
    let one = Gateway::start(Mode::Whole, 0, &[at], &[], &more);
    let page = one.show(Show::Overview)["page"].clone();
    let page: SocketAddr = page.as_str().unwrap().parse().unwrap();
    let host = page.to_string();
    let ask = || {
        let answer = get(page, "/data", &host);
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        body.to_owned()
    };
    let began = std::time::Instant::now();
    let floods: Vec<_> = std::thread::scope(|scope| {
        let each = || (0..25).map(|_| ask()).collect::<Vec<_>>();
        let all: Vec<_> = (0..8).map(|_| scope.spawn(each)).collect();
        let joined = all.into_iter().map(|one| one.join().unwrap());
        joined.flatten().collect()
    });
    let documents: std::collections::BTreeSet<_> = floods.iter().collect();
    // Documents are at least a second apart.
    let most = began.elapsed().as_secs() as usize + 2;
    assert_eq!(floods.len(), 200);
    assert!(documents.len() <= most, "{} documents", documents.len());
    // It still answers others.
    assert!(get(page, "/", &host).starts_with("HTTP/1.1 200"));
}

/// What a browser makes of a page, scripts run.
fn shown(browser: &str, url: &str) -> std::io::Result<String> {
    let profile = tempfile::tempdir()?;
    let output = Command::new(browser)
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--dump-dom",
            "--virtual-time-budget=4000",
        ])
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .arg(url)
        .output()?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
fn a_browser_shows_the_federation_and_hostile_text_as_text() {
    let browsers = ["chromium", "chromium-browser", "google-chrome"];
    let works = |name: &&&str| shown(name, "about:blank").is_ok_and(|dom| dom.contains("<html"));
    let Some(browser) = browsers.iter().find(works) else {
        netlab::lacks_program(env!("CARGO_PKG_NAME"), "chromium");
        return;
    };
    let (one, other, page) = gateways();
    join(&other, 1, BULK);
    join(&other, 100, HOSTILE_NAME);
    eventually("a source", || {
        one.hand.send(BULK, frames(10, 1000)).then_some(())
    });
    eventually("statistics", || {
        let sessions = one.show(Show::Sessions);
        let mut all = sessions["sessions"].as_array()?.iter();
        all.any(|row| row["packets"] == 10).then_some(())
    });
    // A browser that is killed sends nothing; the page would send something.
    let mut tries = (0..3).map(|_| shown(browser, &format!("http://{page}/")).unwrap());
    let seen = tries.find(|dom| !dom.is_empty()).unwrap_or_default();
    let body = seen.split("<script").next().unwrap_or_default();
    assert!(seen.contains("<title>Gateway 1.1</title>"), "{seen}");
    assert!(
        body.contains("established") && body.contains("bfed://1/fake/file"),
        "{body}"
    );
    // Own, two peers, and the links to them.
    assert_eq!(body.matches("<circle").count(), 3, "{body}");
    assert_eq!(body.matches("class=\"link").count(), 2, "{body}");
    assert!(
        body.contains("&lt;img src=x"),
        "the peer's words are missing: {body}"
    );
    assert!(!body.contains("<img"), "{body}");
}
