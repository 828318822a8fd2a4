//! Headless chromium, driven by the [DevTools protocol](https://chromedevtools.github.io/devtools-protocol/) over pipes, for
//! tests and experiments with pages that play.
//!
//! The browser runs in the network namespace of the thread that opens it, with a profile of its own, and ends when the
//! [`Browser`] is dropped. Where chromium is not installed, [`is_installed`] says so.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use base64::Engine as _;
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use serde_json::{Value, json};
use tempfile::TempDir;

/// Time for the browser to answer a command.
const ANSWER: Duration = Duration::from_secs(60);
/// Between looks at a page that is waited for.
const LOOK: Duration = Duration::from_millis(200);

/// Starts chromium with its two pipes as descriptors 3 and 4. Arguments: pipe to it, pipe from it, profile, log.
const SCRIPT: &str = "exec chromium --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --no-first-run \
    --window-size=900,700 --autoplay-policy=no-user-gesture-required --remote-debugging-pipe \
    --user-data-dir=\"$3\" about:blank 3<\"$1\" 4>\"$2\" 2>\"$4\"";

/// Counts the colours that cover more than 2 % of the video in a screenshot, of 64 that are told apart.
const COUNT_COLOURS: &str = "(async data => {
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

/// Returns whether chromium can be started here.
#[must_use]
pub fn is_installed() -> bool {
    let mut command = Command::new("chromium");
    let command = command
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// Makes a certificate that a page can pin by its hash, and its key, with `openssl`: on P-256, for ten days, since browsers
/// accept no more than two weeks. Returns both files.
///
/// # Errors
/// `openssl` is not installed or fails.
pub fn pinned_certificate(folder: &Path) -> Result<[PathBuf; 2]> {
    let files = ["certificate.pem", "key.pem"].map(|name| folder.join(name));
    let arguments =
        "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 10 -subj /CN=gateway";
    let mut openssl = Command::new("openssl");
    openssl
        .args(arguments.split(' '))
        .arg("-out")
        .arg(&files[0]);
    openssl.arg("-keyout").arg(&files[1]).stderr(Stdio::null());
    let done = openssl.status().context("start openssl")?;
    ensure!(done.success(), "openssl makes no certificate");
    Ok(files)
}

/// A program that is killed when dropped.
#[derive(Debug)]
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A browser with one page.
#[derive(Debug)]
pub struct Browser {
    to: File,
    from: Receiver<Value>,
    /// The page, once it is attached.
    session: Option<String>,
    /// Number of the last command.
    last: u64,
    _process: Running,
    folder: TempDir,
}

impl Browser {
    /// Starts a browser and opens a page.
    ///
    /// # Errors
    /// The browser does not start, or does not answer.
    pub fn open(url: &str) -> Result<Browser> {
        let folder = tempfile::tempdir().context("create a folder for the profile")?;
        let pipe = |name: &str| {
            let path = folder.path().join(name);
            mkfifo(&path, Mode::S_IRWXU).context("create a pipe")?;
            anyhow::Ok(path)
        };
        let (to, from) = (pipe("to")?, pipe("from")?);
        let mut command = Command::new("bash");
        command.args(["-c", SCRIPT, "chromium"]).arg(&to).arg(&from);
        command
            .arg(folder.path().join("profile"))
            .arg(folder.path().join("log"));
        let child = command.stdout(Stdio::null()).spawn();
        let process = Running(child.context("start bash, which starts chromium")?);
        // Each waits for the other end.
        let to = File::options().write(true).open(to)?;
        let pipe = File::open(from)?;
        let (sender, from) = channel();
        std::thread::spawn(move || read_messages(pipe, &sender));
        let mut browser = Browser {
            to,
            from,
            session: None,
            last: 0,
            _process: process,
            folder,
        };
        let target = browser.call("Target.createTarget", json!({ "url": url }))?;
        let target = json!({ "targetId": target["targetId"], "flatten": true });
        let session = browser.call("Target.attachToTarget", target)?;
        browser.session = session["sessionId"].as_str().map(str::to_owned);
        Ok(browser)
    }

    /// Sends a command to the page, and returns its result.
    ///
    /// # Errors
    /// The browser has ended, does not answer within a minute, or reports an error.
    pub fn call(&mut self, method: &str, parameters: Value) -> Result<Value> {
        self.last += 1;
        let mut message = json!({ "id": self.last, "method": method, "params": parameters });
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        let sent = self.to.write_all(format!("{message}\0").as_bytes());
        sent.with_context(|| self.log())?;
        let until = Instant::now() + ANSWER;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let mut answer = match self.from.recv_timeout(left) {
                Ok(answer) => answer,
                Err(RecvTimeoutError::Timeout) => bail!("{method}: no answer\n{}", self.log()),
                Err(RecvTimeoutError::Disconnected) => {
                    bail!("{method}: the browser has ended\n{}", self.log())
                }
            };
            if answer["id"] == self.last {
                ensure!(answer["error"].is_null(), "{method}: {}", answer["error"]);
                return Ok(answer["result"].take());
            }
        }
    }

    /// Returns the value of an expression on the page, or of its promise.
    ///
    /// # Errors
    /// As [`Browser::call`].
    pub fn value(&mut self, expression: &str) -> Result<Value> {
        let parameters =
            json!({ "expression": expression, "awaitPromise": true, "returnByValue": true });
        Ok(self.call("Runtime.evaluate", parameters)?["result"]["value"].take())
    }

    /// Returns a picture of the page, as a PNG file.
    ///
    /// # Errors
    /// As [`Browser::call`].
    pub fn screenshot(&mut self) -> Result<Vec<u8>> {
        let shot = self.call("Page.captureScreenshot", json!({ "format": "png" }))?;
        let data = shot["data"].as_str().context("no picture")?;
        Ok(base64::engine::general_purpose::STANDARD.decode(data)?)
    }

    /// Returns the clock of the first video of the page, in seconds; 0 where there is none.
    ///
    /// # Errors
    /// As [`Browser::call`].
    pub fn clock(&mut self) -> Result<f64> {
        let clock = self.value("document.querySelector('video')?.currentTime")?;
        Ok(clock.as_f64().unwrap_or(0.0))
    }

    /// Returns how many colours cover more than 2 % of the first video in a screenshot: one for a black picture, eight for a
    /// test pattern of eight bars.
    ///
    /// # Errors
    /// As [`Browser::call`].
    pub fn colours(&mut self) -> Result<u64> {
        let shot = self.screenshot()?;
        let data = base64::engine::general_purpose::STANDARD.encode(shot);
        let count = self.value(&format!("{COUNT_COLOURS}('{data}')"))?;
        Ok(count.as_u64().unwrap_or(0))
    }

    /// Waits until the clock of the video has advanced by that much, at most `limit`. Returns the time until it began.
    ///
    /// # Errors
    /// As [`Browser::call`], or it does not play.
    pub fn plays(&mut self, advance: Duration, limit: Duration) -> Result<Duration> {
        let (start, mut first) = (Instant::now(), None);
        while start.elapsed() < limit {
            let clock = self.clock()?;
            let (began, from) = match first {
                Some(first) => first,
                None if clock > 0.0 => *first.insert((start.elapsed(), clock)),
                None => (Duration::ZERO, f64::INFINITY),
            };
            if clock >= from + advance.as_secs_f64() {
                return Ok(began);
            }
            std::thread::sleep(LOOK);
        }
        let page = self.value("document.body.innerText")?;
        bail!("the clock of the video does not advance; the page says {page}")
    }

    /// Returns what the browser has logged.
    fn log(&self) -> String {
        tail(&self.folder.path().join("log"))
    }
}

/// Reads messages, each of which ends with a zero byte, until the pipe or the receiver ends.
fn read_messages(mut pipe: File, to: &Sender<Value>) {
    let (mut bytes, mut piece) = (vec![], vec![0; 1 << 16]);
    while let Ok(len @ 1..) = pipe.read(&mut piece) {
        bytes.extend_from_slice(&piece[..len]);
        while let Some(end) = bytes.iter().position(|&byte| byte == 0) {
            let message: Vec<u8> = bytes.drain(..=end).collect();
            let Ok(message) = serde_json::from_slice(&message[..end]) else {
                return;
            };
            if to.send(message).is_err() {
                return;
            }
        }
    }
}

/// The last lines of a file.
fn tail(path: &Path) -> String {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(10)..].join("\n")
}
