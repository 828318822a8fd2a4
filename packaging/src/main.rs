//! Writes man pages, shell completions and Debian packages of polycast's programs.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use packaging::{Machine, PACKAGES, PROGRAMS, build, write_documents};

/// Writes man pages, shell completions and Debian packages of polycast's programs
#[derive(Debug, Parser)]
#[command(name = "packaging", version)]
struct Args {
    /// Folder to write to
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Folder of the programs, such as target/release: packages are built of them. Without it only man
    /// pages and completions are written
    #[arg(long, value_name = "DIR")]
    binaries: Option<PathBuf>,
    /// What the programs are built for, as Debian calls it
    #[arg(long, value_name = "NAME", default_value = HOST)]
    architecture: String,
}

const HOST: &str = match std::env::consts::ARCH.as_bytes() {
    b"x86_64" => "amd64",
    b"aarch64" => "arm64",
    _ => std::env::consts::ARCH,
};

fn write(args: Args) -> std::io::Result<()> {
    std::fs::create_dir_all(&args.out)?;
    for program in PROGRAMS {
        write_documents(program, &args.out.join("share"))?;
    }
    let Some(binaries) = args.binaries else {
        return Ok(());
    };
    let machine = Machine {
        architecture: args.architecture,
        binaries,
    };
    for package in PACKAGES {
        println!("{}", build(package, &machine, &args.out)?.display());
    }
    Ok(())
}

fn main() -> ExitCode {
    let args: Args = match cli::args::parse(std::env::args_os()) {
        Ok(args) => args,
        Err(code) => return code,
    };
    match write(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => cli::exit::fail(cli::exit::FAILED, error),
    }
}
