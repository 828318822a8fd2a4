//! Sessions that play in a browser: a test pattern of ffmpeg, and headless chromium.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use bfed_client::session_path;
use bfed_gateway::status::Show;
use linux_net::netns::Namespace;
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use serde_json::{Value, json};
use socket2::{Domain, Socket, Type};
use tempfile::TempDir;

use crate::common::*;

/// A program that is killed when dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn runs(program: &str) -> bool {
    let mut command = Command::new(program);
    let command = command
        .arg("-version")
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// Runs `body` in a network of its own, or says which program is missing.
fn in_a_network(body: impl FnOnce() + Send) {
    for program in ["chromium", "ffmpeg"] {
        if !runs(program) {
            eprintln!("SKIPPED: no {program} here, nothing was played in a browser");
            return;
        }
    }
    if netlab::permitted(env!("CARGO_PKG_NAME")) {
        let namespace = Namespace::new().expect("namespace");
        namespace.run(body).expect("enter namespace");
    }
}

/// A browser that is driven by the DevTools protocol over pipes.
struct Browser {
    to: File,
    from: Receiver<Value>,
    session: Option<String>,
    next: u64,
    _process: Running,
    _folder: TempDir,
}

impl Browser {
    fn open(url: &str) -> Browser {
        let folder = tempfile::tempdir().unwrap();
        let [to, from] = ["to", "from"].map(|name| {
            let path = folder.path().join(name);
            mkfifo(&path, Mode::S_IRWXU).unwrap();
            path
        });
        let script = "exec chromium --headless --no-sandbox --disable-gpu --disable-dev-shm-usage \
                      --window-size=900,700 --autoplay-policy=no-user-gesture-required \
                      --remote-debugging-pipe --user-data-dir=\"$3\" about:blank 3<\"$1\" 4>\"$2\" 2>\"$4\"";
        let mut command = Command::new("bash");
        command.args(["-c", script, "chromium"]).arg(&to).arg(&from);
        command
            .arg(folder.path().join("profile"))
            .arg(folder.path().join("log"));
        let process = Running(command.stdout(Stdio::null()).spawn().unwrap());
        let to = File::options().write(true).open(to).unwrap();
        let mut pipe = File::open(from).unwrap();
        let (sender, from) = channel();
        std::thread::spawn(move || {
            let (mut bytes, mut piece) = (vec![], vec![0; 1 << 16]);
            while let Ok(len @ 1..) = pipe.read(&mut piece) {
                bytes.extend_from_slice(&piece[..len]);
                while let Some(end) = bytes.iter().position(|&byte| byte == 0) {
                    let message: Vec<u8> = bytes.drain(..=end).collect();
                    let message = serde_json::from_slice(&message[..end]).unwrap();
                    if sender.send(message).is_err() {
                        return;
                    }
                }
            }
        });
        let mut browser = Browser {
            to,
            from,
            session: None,
            next: 0,
            _process: process,
            _folder: folder,
        };
        let target = browser.call("Target.createTarget", json!({ "url": url }));
        let target = json!({ "targetId": target["targetId"], "flatten": true });
        let session = browser.call("Target.attachToTarget", target);
        browser.session = session["sessionId"].as_str().map(str::to_owned);
        browser
    }

    fn call(&mut self, method: &str, parameters: Value) -> Value {
        self.next += 1;
        let mut message = json!({ "id": self.next, "method": method, "params": parameters });
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        self.to
            .write_all(format!("{message}\0").as_bytes())
            .unwrap();
        loop {
            let answer = self.from.recv_timeout(Duration::from_secs(60));
            let mut answer = answer.expect("the browser answers");
            if answer["id"] == self.next {
                assert_eq!(answer["error"], Value::Null, "{method}");
                return answer["result"].take();
            }
        }
    }

    /// The value of an expression on the page, or of its promise.
    fn value(&mut self, expression: &str) -> Value {
        let parameters =
            json!({ "expression": expression, "awaitPromise": true, "returnByValue": true });
        self.call("Runtime.evaluate", parameters)["result"]["value"].take()
    }

    fn clock(&mut self) -> f64 {
        let clock = self.value("document.querySelector('video').currentTime");
        clock.as_f64().unwrap_or(0.0)
    }

    /// How many colours cover more than 2 % of the place of the video in a screenshot.
    fn colours(&mut self) -> u64 {
        let shot = self.call("Page.captureScreenshot", json!({ "format": "png" }));
        let data = shot["data"].as_str().unwrap();
        let count = "(async data => {
            const image = new Image();
            image.src = 'data:image/png;base64,' + data;
            await image.decode();
            const box = document.querySelector('video').getBoundingClientRect();
            const canvas = document.createElement('canvas');
            canvas.width = box.width; canvas.height = box.height;
            const context = canvas.getContext('2d');
            context.drawImage(image, -box.x, -box.y);
            const pixels = context.getImageData(0, 0, canvas.width, canvas.height).data, seen = new Map();
            for (let at = 0; at < pixels.length; at += 4) {
                const colour = (pixels[at] >> 6) * 16 + (pixels[at + 1] >> 6) * 4 + (pixels[at + 2] >> 6);
                seen.set(colour, (seen.get(colour) || 0) + 1);
            }
            return [...seen.values()].filter(count => count * 50 > pixels.length / 4).length;
        })";
        self.value(&format!("{count}('{data}')"))
            .as_u64()
            .unwrap_or(0)
    }

    /// Waits until the clock of the video has advanced by three seconds and its frames are visible.
    fn plays(&mut self) -> String {
        eventually("a clock that runs", || (self.clock() > 0.0).then_some(()));
        let start = self.clock();
        eventually("three seconds more", || {
            (self.clock() > start + 3.0).then_some(())
        });
        // The pattern has eight bars, and a page without a picture is black.
        let colours = self.colours();
        assert!(colours >= 6, "{colours} colours in the screenshot");
        let state = self.value("document.getElementById('state').textContent");
        state.as_str().unwrap_or_default().to_owned()
    }
}

/// ffmpeg with a test pattern, as fast as it plays, and its output.
fn pattern(arguments: &[&str]) -> Running {
    let mut command = Command::new("ffmpeg");
    command.args([
        "-hide_banner",
        "-loglevel",
        "error",
        "-re",
        "-f",
        "lavfi",
        "-i",
    ]);
    command.args([
        "testsrc=size=320x240:rate=25",
        "-c:v",
        "libx264",
        "-preset",
        "ultrafast",
    ]);
    command.args(["-tune", "zerolatency", "-g", "25", "-pix_fmt", "yuv420p"]);
    command.args(arguments).arg("pipe:1");
    Running(
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap(),
    )
}

/// Calls `send` with the output of a program until either ends.
fn pour(running: &mut Running, len: usize, mut send: impl FnMut(&[u8]) -> bool + Send + 'static) {
    let mut output = running.0.stdout.take().unwrap();
    std::thread::spawn(move || {
        let mut piece = vec![0; len];
        let mut filled = 0;
        while let Ok(read @ 1..) = output.read(&mut piece[filled..]) {
            filled += read;
            // Whole packets where the length is theirs.
            if filled == len || len > 1316 {
                if !send(&piece[..filled]) {
                    return;
                }
                filled = 0;
            }
        }
    });
}

/// The section of a gateway of an HTTP network.
fn http(server: SocketAddr) -> String {
    let mediator = port();
    format!("[network]\nkind = \"http\"\nlisten = \"{server}\"\nmediator = \"{mediator}\"\n")
}

#[test]
fn a_test_pattern_of_an_ip_multicast_island_plays_in_a_browser_of_another_over_hls() {
    in_a_network(|| {
        let (at, server) = ([port(), port()], port());
        let multicast =
            "[network]\nkind = \"ip\"\ninterface = \"lo\"\nexport = [\"239.1.0.0/16\"]\n";
        let rest = format!("{multicast}{}", peer(2, at[1]));
        let one = Daemon::start("run", 1, &listen(at[0]), &rest);
        let status = "[status]\npage = \"127.0.0.1:0\"\n";
        let rest = format!("{}{status}{}", http(server), peer(1, at[0]));
        let other = Daemon::start("run", 2, &listen(at[1]), &rest);
        one.peered();
        other.peered();
        let socket = Socket::new(Domain::IPV4, Type::DGRAM, None).unwrap();
        socket.set_multicast_if_v4(&Ipv4Addr::LOCALHOST).unwrap();
        let group: SocketAddr = "239.1.2.3:5004".parse().unwrap();
        let mut source = pattern(&["-f", "mpegts"]);
        pour(&mut source, 1316, move |packets| {
            socket.send_to(packets, &group.into()).is_ok()
        });
        let path = session_path("bfed://1/239.1.2.3/5004", 0).replacen("/s/", "/play/", 1);
        let mut browser = Browser::open(&format!("http://{server}{path}"));
        let state = browser.plays();
        assert!(state.starts_with("HLS, 320 × 240"), "{state}");
        // The status page leads there.
        let page = other.show(Show::Overview)["page"].clone();
        let mut status = Browser::open(&format!("http://{}/", page.as_str().unwrap()));
        let link = eventually("a link to the player", || {
            let link = status.value("document.querySelector('#sessions a')?.href");
            link.as_str().map(str::to_owned)
        });
        let expected = "/play/bfed%3A%2F%2F1%2F239.1.2.3%2F5004";
        assert!(
            link.starts_with(&format!("http://{server}{expected}")),
            "{link}"
        );
    });
}

#[test]
fn a_stream_of_fragments_plays_through_media_source() {
    in_a_network(|| {
        let server = port();
        let _gateway = Daemon::start("run", 2, &listen(port()), &http(server));
        let path = session_path("bfed://2/film", 0);
        let mut put = TcpStream::connect(server).unwrap();
        let head = format!("PUT {path} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n");
        put.write_all(head.as_bytes()).unwrap();
        let fragments = "+frag_every_frame+empty_moov+default_base_moof";
        let mut source = pattern(&["-f", "mp4", "-movflags", fragments]);
        pour(&mut source, 1 << 16, move |bytes| {
            let chunk = [format!("{:x}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat();
            put.write_all(&chunk).is_ok()
        });
        // The viewer arrives late.
        std::thread::sleep(Duration::from_secs(3));
        let mut browser = Browser::open(&format!(
            "http://{server}{}",
            path.replacen("/s/", "/play/", 1)
        ));
        let state = browser.plays();
        assert!(state.starts_with("stream, 320 × 240"), "{state}");
    });
}

/// A certificate for ten days that browsers accept by its hash, and its key.
fn short_lived(folder: &TempDir) -> [String; 2] {
    let files = ["certificate.pem", "key.pem"].map(|name| folder.path().join(name));
    let arguments = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 10 -subj /CN=gateway";
    let mut command = Command::new("openssl");
    command.args(arguments.split_whitespace());
    command.arg("-out").arg(&files[0]).arg("-keyout").arg(&files[1]);
    let done = command.stderr(Stdio::null()).status().unwrap();
    assert!(done.success(), "openssl makes a certificate");
    files.map(|file| file.display().to_string())
}

#[test]
fn a_stream_of_fragments_plays_over_moq() {
    in_a_network(|| {
        let (server, folder) = (port(), tempfile::tempdir().unwrap());
        let [certificate, key] = short_lived(&folder);
        let moq = format!(
            "{}moq-listen = \"{}\"\nmoq-certificate = \"{certificate}\"\nmoq-key = \"{key}\"\nmoq-pin = true\n",
            http(server).replace("\"http\"", "\"moq\""),
            port()
        );
        let _gateway = Daemon::start("run", 2, &listen(port()), &moq);
        let path = session_path("bfed://2/film", 0);
        let mut put = TcpStream::connect(server).unwrap();
        let head = format!("PUT {path} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n");
        put.write_all(head.as_bytes()).unwrap();
        let fragments = "+frag_every_frame+empty_moov+default_base_moof";
        let mut source = pattern(&["-f", "mp4", "-movflags", fragments]);
        pour(&mut source, 1 << 16, move |bytes| {
            let chunk = [format!("{:x}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat();
            put.write_all(&chunk).is_ok()
        });
        // The viewer arrives late.
        std::thread::sleep(Duration::from_secs(3));
        let mut browser = Browser::open(&format!(
            "http://{server}{}",
            path.replacen("/s/", "/play/", 1)
        ));
        let state = browser.plays();
        assert!(state.starts_with("MoQ, 320 × 240"), "{state}");
    });
}
