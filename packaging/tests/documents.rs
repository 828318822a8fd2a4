//! Man pages and completions say what `--help` says; units start what is installed.

use std::fs;

use packaging::{PACKAGES, PROGRAMS, write_documents};

/// Every long option of a command and its verbs, as users write them.
fn options(command: &clap::Command) -> Vec<String> {
    let own = command
        .get_arguments()
        .filter(|argument| !argument.is_hide_set())
        .filter_map(|argument| Some(format!("--{}", argument.get_long()?)));
    let below = command.get_subcommands().flat_map(options);
    own.chain(below).collect()
}

#[test]
fn every_option_is_in_the_manual_and_in_each_completion() {
    let folder = tempfile::tempdir().unwrap();
    for program in PROGRAMS {
        write_documents(program, folder.path()).unwrap();
        let read = |path: String| fs::read_to_string(folder.path().join(path)).unwrap();
        let (name, section) = (program.name, program.section);
        let mut pages = String::new();
        for entry in fs::read_dir(folder.path().join(format!("man/man{section}"))).unwrap() {
            let path = entry.unwrap().path();
            let file = path.file_name().unwrap().to_str().unwrap();
            let own = format!("{name}.{section}");
            if file == own || file.starts_with(&format!("{name}-")) {
                pages.push_str(&fs::read_to_string(&path).unwrap());
            }
        }
        // roff writes a hyphen as "\-".
        let pages = pages.replace("\\-", "-");
        let bash = read(format!("bash-completion/completions/{name}"));
        let zsh = read(format!("zsh/vendor-completions/_{name}"));
        let fish = read(format!("fish/vendor_completions.d/{name}.fish"));
        let options = options(&(program.command)());
        assert!(!options.is_empty(), "{name}");
        for option in options {
            assert!(pages.contains(&option), "{name}: {option} in the manual");
            assert!(bash.contains(&option), "{name}: {option} in bash");
            assert!(zsh.contains(&option), "{name}: {option} in zsh");
            let long = format!("-l {}", option.trim_start_matches("--"));
            assert!(fish.contains(&long), "{name}: {option} in fish");
        }
    }
}

#[test]
fn each_program_is_in_one_package() {
    for program in PROGRAMS {
        let packages = PACKAGES
            .iter()
            .filter(|package| package.programs.contains(&program.name));
        assert_eq!(packages.count(), 1, "{}", program.name);
    }
}

#[test]
fn units_start_what_is_installed() {
    for program in PROGRAMS {
        let Some(unit) = program.unit else { continue };
        let name = program.name;
        assert!(
            unit.contains(&format!("ExecStart=/usr/bin/{name} ")),
            "{name}"
        );
        let configuration = format!("/etc/polycast/{name}.toml");
        assert_eq!(
            unit.contains(&configuration),
            program.configuration.is_some(),
            "{name}"
        );
        // The command line of the unit is one that the program takes.
        let start = unit
            .lines()
            .find_map(|line| line.strip_prefix("ExecStart=/usr/bin/"));
        let parsed = (program.command)().try_get_matches_from(start.unwrap().split(' '));
        assert!(parsed.is_ok(), "{name}: {parsed:?}");
    }
}
