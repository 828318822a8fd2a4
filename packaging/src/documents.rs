//! Man pages and shell completions.

use std::fs;
use std::io;
use std::path::Path;

use clap_complete::Shell;

use crate::programs::Program;

/// Writes what belongs to `program` below `root`, laid out as below `/usr/share`: its manual page and
/// those of its verbs, and completions for bash, zsh and fish.
///
/// # Errors
/// A file cannot be written.
pub fn write_documents(program: &Program, root: &Path) -> io::Result<()> {
    let section = program.section.to_string();
    let pages = root.join(format!("man/man{section}"));
    fs::create_dir_all(&pages)?;
    let mut command = (program.command)().disable_help_subcommand(true);
    command.build();
    write_pages(&command, program.name, &section, &pages)?;
    for (shell, folder) in [
        (Shell::Bash, "bash-completion/completions"),
        (Shell::Zsh, "zsh/vendor-completions"),
        (Shell::Fish, "fish/vendor_completions.d"),
    ] {
        let folder = root.join(folder);
        fs::create_dir_all(&folder)?;
        let mut command = (program.command)();
        let written = clap_complete::generate_to(shell, &mut command, program.name, &folder)?;
        if shell == Shell::Bash {
            // bash-completion looks for the program's own name.
            fs::rename(written, folder.join(program.name))?;
        }
    }
    Ok(())
}

/// Writes the page of a command and those of its verbs, at any depth.
fn write_pages(
    command: &clap::Command,
    name: &str,
    section: &str,
    folder: &Path,
) -> io::Result<()> {
    write_page(command, name, section, folder)?;
    for verb in command.get_subcommands() {
        let name = format!("{name}-{}", verb.get_name());
        write_pages(verb, &name, section, folder)?;
    }
    Ok(())
}

fn write_page(command: &clap::Command, name: &str, section: &str, folder: &Path) -> io::Result<()> {
    let mut page = Vec::new();
    clap_mangen::Man::new(command.clone())
        .title(name.to_uppercase())
        .section(section)
        .source(concat!("polycast ", env!("CARGO_PKG_VERSION")))
        .manual("polycast")
        // Always the same bytes: the day is that of the version.
        .date("")
        .render(&mut page)?;
    let page = as_written(&String::from_utf8_lossy(&page));
    fs::write(folder.join(format!("{name}.{section}")), page)
}

/// What stands behind the options (examples, tables of exit codes) keeps its lines.
fn as_written(page: &str) -> String {
    let Some((before, extra)) = page.split_once(".SH EXTRA\n") else {
        return page.to_owned();
    };
    let (extra, after) = match extra.split_once("\n.SH ") {
        Some((extra, after)) => (extra, format!(".SH {after}")),
        None => (extra, String::new()),
    };
    format!("{before}.SH NOTES\n.nf\n{extra}\n.fi\n{after}")
}
