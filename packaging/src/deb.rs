//! Debian packages, put together by `dpkg-deb`.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::documents::write_documents;
use crate::programs::{PROGRAMS, Program};

/// What goes into one package.
#[derive(Clone, Copy, Debug)]
pub struct Package {
    /// What it is called.
    pub name: &'static str,
    /// The programs in it.
    pub programs: &'static [&'static str],
    /// One line about it.
    pub summary: &'static str,
    /// A paragraph about it.
    pub description: &'static str,
}

/// Every package.
pub const PACKAGES: &[Package] = &[
    Package {
        name: "polycast-lms",
        programs: &["lms-router", "lms-send", "lms-recv"],
        summary: "reliable multicast with a little help from routers",
        description: "A router that forwards requests for repairs to receivers near by, and tools that \
                      send a file to any number of hosts and receive it.",
    },
    Package {
        name: "polycast-dyram",
        programs: &["dyram-relay"],
        summary: "reliable multicast over plain UDP, by way of relays",
        description: "A relay that carries data where no router speaks multicast, and has losses repaired \
                      by receivers near by.",
    },
    Package {
        name: "polycast-mcp",
        programs: &["mcp", "mcpd"],
        summary: "copies files to many hosts, by multicast where it works",
        description: "A tool that copies files and folders to many hosts at once, verified to the last \
                      byte, and the daemon that receives them.",
    },
    Package {
        name: "polycast-ldc",
        programs: &["ldc-stream"],
        summary: "streams layers over TCP and drops late what would come too late",
        description: "A tool that streams layered media over ordinary TCP and decides at the last moment \
                      what is worth sending.",
    },
    Package {
        name: "polycast-bfed",
        programs: &["bfed-gateway", "bfed-join"],
        summary: "joins islands of broadcast: gateway, viewer and source",
        description: "A gateway of the Broadcast Federation: a viewer in one network gets a session that \
                      lives in another. With it the viewer, which is a source too.",
    },
    Package {
        name: "polycast-wireshark",
        programs: &[],
        summary: "Wireshark dissectors of polycast's protocols",
        description: "Lua files that explain LMS, LTP, DyRAM, TCP-XM and Broadcast Federation to \
                      Wireshark and tshark.",
    },
];

/// What the binaries are built for.
#[derive(Clone, Debug)]
pub struct Machine {
    /// As Debian calls it: `amd64`.
    pub architecture: String,
    /// Where the binaries lie.
    pub binaries: PathBuf,
}

/// Builds `package` into `out` and returns its file.
///
/// # Errors
/// A binary is not there, a file cannot be written, or `dpkg-deb` cannot be run or refuses.
pub fn build(package: &Package, machine: &Machine, out: &Path) -> io::Result<PathBuf> {
    let root = out.join(format!(".{}", package.name));
    if root.exists() {
        fs::remove_dir_all(&root)?;
    }
    let programs = PROGRAMS
        .iter()
        .filter(|program| package.programs.contains(&program.name));
    let mut needs = Needs::default();
    for program in programs {
        install(program, machine, &root, &mut needs)?;
    }
    if package.programs.is_empty() {
        dissectors(&root)?;
    }
    about(package, &root)?;
    let architecture = match package.programs {
        [] => "all",
        _ => &machine.architecture,
    };
    control(package, architecture, &needs, &root)?;
    let file = out.join(format!(
        "{}_{}_{architecture}.deb",
        package.name,
        env!("CARGO_PKG_VERSION")
    ));
    let built = run(Command::new("dpkg-deb")
        .args(["--root-owner-group", "-Zxz", "-z3", "--build"])
        .args([&root, &file]));
    fs::remove_dir_all(&root)?;
    built.map(|()| file)
}

/// What the control files say of a package's content.
#[derive(Default)]
struct Needs {
    /// The newest `GLIBC_2.N` that a binary names.
    libc_minor: u32,
    units: Vec<&'static str>,
    configurations: Vec<String>,
}

fn install(program: &Program, machine: &Machine, root: &Path, needs: &mut Needs) -> io::Result<()> {
    let binary = machine.binaries.join(program.name);
    let bytes = fs::read(&binary)
        .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", binary.display())))?;
    let installed = write(root, &format!("usr/bin/{}", program.name), &bytes, 0o755)?;
    run(Command::new("strip")
        .arg("--strip-unneeded")
        .arg(&installed))?;
    needs.libc_minor = needs.libc_minor.max(newest_libc(&fs::read(&installed)?));
    write_documents(program, &root.join("usr/share"))?;
    compress_pages(root, program.section)?;
    if let Some(unit) = program.unit {
        let path = format!("usr/lib/systemd/system/{}.service", program.name);
        write(root, &path, unit.as_bytes(), 0o644)?;
        needs.units.push(program.name);
    }
    if let Some(configuration) = program.configuration {
        let path = format!("etc/polycast/{}.toml", program.name);
        write(root, &path, configuration.as_bytes(), 0o644)?;
        needs.configurations.push(format!("/{path}"));
    }
    Ok(())
}

/// The `N` of the newest `GLIBC_2.N` in a binary's table of versions; 0 in a static one.
fn newest_libc(binary: &[u8]) -> u32 {
    const MARK: &[u8] = b"GLIBC_2.";
    binary
        .windows(MARK.len() + 3)
        .filter_map(|window| window.strip_prefix(MARK))
        .map(|digits| {
            let digits = digits.iter().take_while(|byte| byte.is_ascii_digit());
            digits.fold(0, |number, byte| 10 * number + u32::from(byte - b'0'))
        })
        .max()
        .unwrap_or(0)
}

fn compress_pages(root: &Path, section: u8) -> io::Result<()> {
    let folder = root.join(format!("usr/share/man/man{section}"));
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension() != Some(OsStr::new("gz")) {
            run(Command::new("gzip").args(["-9n"]).arg(&path))?;
        }
    }
    Ok(())
}

fn dissectors(root: &Path) -> io::Result<()> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../dissectors");
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension() == Some(OsStr::new("lua")) {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let to = format!("usr/lib/wireshark/plugins/{name}");
            write(root, &to, &fs::read(&path)?, 0o644)?;
        }
    }
    Ok(())
}

const COPYRIGHT: &str = "\
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: polycast
Source: https://github.com/polycast/polycast

Files: *
Copyright: 2026 The polycast authors
License: MIT or Apache-2.0

License: MIT
";

fn about(package: &Package, root: &Path) -> io::Result<()> {
    let folder = format!("usr/share/doc/{}", package.name);
    let mut copyright = String::from(COPYRIGHT);
    for line in include_str!("../../LICENSE-MIT").lines() {
        let line = if line.is_empty() { "." } else { line };
        copyright.push_str(&format!(" {line}\n"));
    }
    copyright.push_str(
        "\nLicense: Apache-2.0\n On Debian systems the text of this license is in\n \
         /usr/share/common-licenses/Apache-2.0.\n",
    );
    write(
        root,
        &format!("{folder}/copyright"),
        copyright.as_bytes(),
        0o644,
    )?;
    let changes = format!(
        "{} ({}) unstable; urgency=medium\n\n  * The version that `--version` tells.\n\n -- The polycast \
         authors <polycast@users.noreply.github.com>  Thu, 01 Jan 2026 00:00:00 +0000\n",
        package.name,
        env!("CARGO_PKG_VERSION"),
    );
    let path = write(
        root,
        &format!("{folder}/changelog"),
        changes.as_bytes(),
        0o644,
    )?;
    run(Command::new("gzip").args(["-9n"]).arg(path))
}

fn control(package: &Package, architecture: &str, needs: &Needs, root: &Path) -> io::Result<()> {
    let depends = match (package.programs, needs.libc_minor) {
        ([], _) => "Recommends: wireshark-common\n".to_owned(),
        (_, 0) => String::new(),
        (_, minor) => format!("Depends: libc6 (>= 2.{minor}), libgcc-s1\n"),
    };
    let text = format!(
        "Package: {}\nVersion: {}\nArchitecture: {architecture}\nMaintainer: The polycast authors \
         <polycast@users.noreply.github.com>\nSection: net\nPriority: optional\n{depends}Homepage: \
         https://github.com/polycast/polycast\nDescription: {}\n {}\n",
        package.name,
        env!("CARGO_PKG_VERSION"),
        package.summary,
        wrapped(package.description),
    );
    write(root, "DEBIAN/control", text.as_bytes(), 0o644)?;
    if !needs.configurations.is_empty() {
        let list = needs.configurations.join("\n") + "\n";
        write(root, "DEBIAN/conffiles", list.as_bytes(), 0o644)?;
    }
    if needs.units.is_empty() {
        return Ok(());
    }
    // Units are neither enabled nor started: each needs a look at its configuration first.
    let running = "if [ -d /run/systemd/system ]; then\n\tsystemctl daemon-reload || true\n";
    let units = needs.units.join(".service ") + ".service";
    let script = |when: &str, then: &str| {
        format!("#!/bin/sh\nset -e\nif [ \"$1\" = {when} ]; then\n{running}{then}fi\nfi\n")
    };
    let restart = format!("\tsystemctl try-restart {units} || true\n");
    let stop = format!(
        "#!/bin/sh\nset -e\nif [ \"$1\" = remove ] && [ -d /run/systemd/system ]; then\n\tsystemctl \
         disable --now {units} || true\nfi\n"
    );
    write(
        root,
        "DEBIAN/postinst",
        script("configure", &restart).as_bytes(),
        0o755,
    )?;
    write(root, "DEBIAN/prerm", stop.as_bytes(), 0o755)?;
    write(
        root,
        "DEBIAN/postrm",
        script("remove", "").as_bytes(),
        0o755,
    )?;
    Ok(())
}

/// A paragraph in lines of at most 78 characters, each after the first behind a space.
fn wrapped(paragraph: &str) -> String {
    let mut text = String::new();
    let mut column = 0;
    for word in paragraph.split_whitespace() {
        if column + word.len() >= 78 {
            text.push_str("\n ");
            column = 0;
        } else if column > 0 {
            text.push(' ');
            column += 1;
        }
        text.push_str(word);
        column += word.len();
    }
    text
}

fn write(root: &Path, path: &str, bytes: &[u8], mode: u32) -> io::Result<PathBuf> {
    let path = root.join(path);
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::write(&path, bytes)?;
    fs::set_permissions(&path, fs::Permissions::from_mode(mode))?;
    Ok(path)
}

fn run(command: &mut Command) -> io::Result<()> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command
        .output()
        .map_err(|error| io::Error::new(error.kind(), format!("{program}: {error}")))?;
    if output.status.success() {
        return Ok(());
    }
    let message = String::from_utf8_lossy(&output.stderr);
    Err(io::Error::other(format!("{program}: {}", message.trim())))
}

#[cfg(test)]
mod tests {
    use super::newest_libc;

    #[test]
    fn the_newest_libc_counts() {
        let binary = b"\0GLIBC_2.9\0GLIBC_2.34\0GLIBC_2.4\0 GLIBC_PRIVATE \0";
        assert_eq!(newest_libc(binary), 34);
        assert_eq!(newest_libc(b"static"), 0);
    }
}
