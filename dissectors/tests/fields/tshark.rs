//! Running `tshark` with the dissectors, and reading the JSON it prints.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::Shown;
use crate::packets::pcap;

/// What it shows of one packet.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) fields: Shown,
    pub(crate) malformed: bool,
    pub(crate) messages: Vec<String>,
    pub(crate) lua_error: Option<String>,
}

pub(crate) struct Tshark {
    /// Every field of the dissectors.
    fields: Vec<String>,
}

/// Ports of the protocols that have none of their own.
const DECODE_AS: &[&str] = &[
    "udp.port==5000,polycast.ltp",
    "udp.port==22136,polycast.tcpxm_udp",
    "udp.port==5002,polycast.bfed_data",
    "tcp.port==5003,polycast.ldc",
];

fn scripts() -> Vec<PathBuf> {
    let mut scripts: Vec<PathBuf> = std::fs::read_dir(env!("CARGO_MANIFEST_DIR"))
        .expect("the folder of the dissectors")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|is| is == "lua"))
        .collect();
    scripts.sort();
    scripts
}

/// With the dissectors installed as `README.md` says, in a home with nothing else in it.
fn command(home: &Path) -> Command {
    let plugins = home.join(".local/lib/wireshark/plugins");
    std::fs::create_dir_all(&plugins).expect("a folder for plugins");
    for script in scripts() {
        let name = script.file_name().expect("a name");
        std::fs::copy(&script, plugins.join(name)).expect("a copy");
    }
    let mut command = Command::new("tshark");
    command.env("HOME", home).stdin(Stdio::null());
    command
}

impl Tshark {
    /// `None` where it is not installed.
    ///
    /// # Panics
    /// A dissector does not load.
    pub(crate) fn find() -> Option<Self> {
        Command::new("tshark").arg("--version").output().ok()?;
        let home = tempfile::tempdir().expect("a home");
        let output = command(home.path()).args(["-G", "fields"]).output();
        let output = output.expect("tshark runs");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(!errors.contains("Lua"), "{errors}");
        let text = String::from_utf8_lossy(&output.stdout);
        let fields: Vec<String> = text
            .lines()
            .filter_map(|line| line.strip_prefix("F\t"))
            .filter_map(|line| line.split('\t').nth(1))
            .filter(|name| name.starts_with("polycast.") && !name.ends_with(".malformed"))
            .map(String::from)
            .collect();
        assert!(fields.len() > 200, "{}", fields.len());
        Some(Tshark { fields })
    }

    /// Each packet as its port says.
    pub(crate) fn dissect(&self, packets: &[Vec<u8>]) -> Vec<Seen> {
        self.run(packets, DECODE_AS)
    }

    /// Each packet as Wireshark guesses.
    pub(crate) fn recognise(&self, packets: &[Vec<u8>]) -> Vec<Seen> {
        self.run(packets, &[])
    }

    /// Each packet of a capture file of `tests/captures`.
    pub(crate) fn capture(&self, name: &str) -> Vec<Seen> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/captures");
        self.read(&folder.join(name), &[])
    }

    fn run(&self, packets: &[Vec<u8>], decode_as: &[&str]) -> Vec<Seen> {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("packets.pcap");
        std::fs::write(&file, pcap(packets)).expect("a capture file");
        self.read(&file, decode_as)
    }

    fn read(&self, file: &Path, decode_as: &[&str]) -> Vec<Seen> {
        let home = tempfile::tempdir().expect("a home");
        let mut command = command(home.path());
        command.args(["-n", "-T", "json"]).arg("-r").arg(file);
        // Each packet separately: no reassembly, nothing is a retransmission.
        for option in ["tcp.analyze_sequence_numbers:FALSE", "ip.defragment:FALSE"] {
            command.args(["-o", option]);
        }
        for rule in decode_as {
            command.args(["-d", rule]);
        }
        for field in &self.fields {
            command.args(["-e", field]);
        }
        for field in ["_ws.expert.message", "_ws.malformed"] {
            command.args(["-e", field]);
        }
        let output = command.output().expect("tshark runs");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{errors}");
        let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        json.as_array()
            .expect("packets")
            .iter()
            .map(|packet| seen(&packet["_source"]["layers"]))
            .collect()
    }
}

fn seen(layers: &serde_json::Value) -> Seen {
    let mut seen = Seen {
        fields: Shown::new(),
        malformed: false,
        messages: Vec::new(),
        lua_error: None,
    };
    for (name, values) in layers.as_object().expect("fields") {
        let values = values.as_array().expect("values").iter();
        let texts = values.filter_map(|value| value.as_str().map(String::from));
        match name.as_str() {
            "_ws.malformed" => seen.malformed = true,
            "_ws.expert.message" => seen.messages.extend(texts),
            _ => {
                seen.fields.insert(name.clone(), texts.map(plain).collect());
            }
        }
    }
    let lua = |message: &&String| message.contains("Lua Error");
    if let Some(message) = seen.messages.iter().find(lua) {
        seen.lua_error = Some(message.clone());
    }
    seen
}

/// Numbers in decimal, whatever base they are shown in.
fn plain(text: String) -> String {
    let hexadecimal = text.strip_prefix("0x");
    match hexadecimal.and_then(|digits| u64::from_str_radix(digits, 16).ok()) {
        Some(number) => number.to_string(),
        None if text == "True" => "1".into(),
        None if text == "False" => "0".into(),
        None => text,
    }
}
