//! A copy of the repository with all mutants of a module in it, compiled once.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::instrument::{FIRST_ID, File, Id, Instrumented};
use crate::list::{Module, Mutant};

/// The copy, and the target folder beside it.
pub struct Tree {
    root: PathBuf,
    target: PathBuf,
}

/// A test program and the folder that its tests expect to run in.
pub struct Program {
    pub path: PathBuf,
    pub folder: PathBuf,
}

/// What became of the mutants of a module.
pub struct Built {
    pub programs: Vec<Program>,
    /// In the programs, each behind its switch.
    pub switched: Vec<Id>,
    /// Not in the programs: constants, and what does not compile behind a switch.
    pub rest: Vec<Id>,
    /// In parts of the source that are not compiled.
    pub not_compiled: HashSet<Id>,
    /// Those of `switched` that are off in constants.
    pub off_in_constants: HashSet<Id>,
}

pub fn id_of(index: usize) -> Id {
    FIRST_ID + Id::try_from(index).expect("fewer than 2^32 mutants")
}

impl Tree {
    /// Copies the files that git tracks or would track, and removes all others; those that are the same stay as they are.
    pub fn copy(work: &Path) -> Result<Self> {
        let root = work.join("tree");
        let output = Command::new("git")
            .args([
                "ls-files",
                "-z",
                "--cached",
                "--others",
                "--exclude-standard",
            ])
            .output()
            .context("cannot run git")?;
        ensure!(output.status.success(), "git ls-files failed");
        let mut copied = HashSet::new();
        for name in output.stdout.split(|byte| *byte == 0) {
            let name = std::str::from_utf8(name)?;
            if Path::new(name).is_file() {
                write_if_new(&root.join(name), &fs::read(name)?)?;
                copied.insert(root.join(name));
            }
        }
        remove_others(&root, &copied)?;
        Ok(Self {
            root: root.canonicalize()?,
            target: work.canonicalize()?.join("target"),
        })
    }

    fn cargo(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("cargo");
        command
            .args(arguments)
            .current_dir(&self.root)
            .env("CARGO_TARGET_DIR", &self.target)
            .env("CARGO_PROFILE_DEV_OPT_LEVEL", "1")
            .env("CARGO_PROFILE_DEV_DEBUG", "0")
            // The switch asks whether it is in a constant; a mutant may contradict a lint that is denied.
            .env("RUSTC_BOOTSTRAP", "1")
            .env(
                "RUSTFLAGS",
                "--cap-lints warn -Zcrate-attr=feature(core_intrinsics,const_eval_select)",
            );
        command
    }

    /// Compiles the test programs of the module's package with as many mutants as compile.
    pub fn build(&self, module: &Module, mutants: &[Mutant]) -> Result<Built> {
        let mut of_file: BTreeMap<&str, Vec<(Id, &Mutant)>> = BTreeMap::new();
        for (index, mutant) in mutants.iter().enumerate() {
            let file = of_file.entry(&mutant.file).or_default();
            file.push((id_of(index), mutant));
        }
        let mut files = BTreeMap::new();
        let (mut left_out, mut not_compiled) = (HashSet::new(), HashSet::new());
        for (name, mutants) in &of_file {
            let source = fs::read_to_string(self.root.join(name))?;
            let parsed = File::parse(source, mutants).with_context(|| name.to_string())?;
            left_out.extend(parsed.without_switch);
            not_compiled.extend(parsed.switched_off);
            files.insert(*name, parsed.file);
        }
        let lib = self
            .root
            .join("crates")
            .join(module.package)
            .join("src/lib.rs");
        let mut lib_source = None;
        loop {
            let mut written = BTreeMap::new();
            for (name, file) in &files {
                let instrumented = file.render(&left_out);
                fs::write(self.root.join(name), &instrumented.text)?;
                written.insert(*name, instrumented);
            }
            // The crate's root may itself be among the files, written anew each time.
            if lib_source.is_none() || files.contains_key(self.relative(&lib)) {
                lib_source = Some(fs::read_to_string(&lib)?);
            }
            let switch = include_str!("switch.rs.in");
            fs::write(
                &lib,
                format!("{}{switch}", lib_source.as_deref().unwrap_or_default()),
            )?;
            let (_, mut refused) = self.compile(&check(module), &written)?;
            if refused.is_empty() {
                let (programs, refused_by_tests) = self.compile(&test(module), &written)?;
                if refused_by_tests.is_empty() {
                    let ids = (0..mutants.len()).map(id_of);
                    let ids = ids.filter(|id| !not_compiled.contains(id));
                    let (rest, switched) = ids.partition(|id| left_out.contains(id));
                    let off_in_constants = files.values().flat_map(File::in_const_fns).collect();
                    return Ok(Built {
                        programs,
                        switched,
                        rest,
                        not_compiled,
                        off_in_constants,
                    });
                }
                refused = refused_by_tests;
            }
            eprintln!("{}: {} mutants do not compile", module.name, refused.len());
            left_out.extend(refused);
        }
    }

    fn relative<'a>(&self, path: &'a Path) -> &'a str {
        let relative = path.strip_prefix(&self.root).unwrap_or(path);
        relative.to_str().unwrap_or_default()
    }

    /// Runs cargo. Returns the test programs that it built and the mutants that the compiler refuses.
    fn compile(
        &self,
        arguments: &[&str],
        written: &BTreeMap<&str, Instrumented>,
    ) -> Result<(Vec<Program>, HashSet<Id>)> {
        let output = self
            .cargo(arguments)
            .args(["-q", "--message-format=json"])
            .output()
            .context("cannot run cargo")?;
        let mut refused = HashSet::new();
        for line in messages(&output.stdout) {
            if line["reason"] == "compiler-message" && line["message"]["level"] == "error" {
                refused.extend(owners(&line["message"], written)?);
            }
        }
        ensure!(
            output.status.success() || !refused.is_empty(),
            "cargo failed: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        Ok((test_programs(&output.stdout), refused))
    }

    /// Compiles one mutant as `cargo mutants` would. Returns its test programs; `None` if it does not compile.
    ///
    /// The copy must be fresh.
    pub fn build_one(&self, module: &Module, mutant: &Mutant) -> Result<Option<Vec<Program>>> {
        let path = self.root.join(&mutant.file);
        let source = fs::read_to_string(&path)?;
        let offset = |place: crate::list::Place| -> usize {
            let lines = source.split_inclusive('\n').take(place.line - 1);
            let line: usize = lines.map(str::len).sum();
            let columns = source[line..].chars().take(place.column - 1);
            line + columns.map(char::len_utf8).sum::<usize>()
        };
        let (start, end) = (offset(mutant.span.start), offset(mutant.span.end));
        let changed = [&source[..start], &mutant.replacement, &source[end..]].concat();
        fs::write(&path, changed)?;
        let programs = self.compile_one(module);
        fs::write(&path, source)?;
        programs
    }

    fn compile_one(&self, module: &Module) -> Result<Option<Vec<Program>>> {
        if !self.cargo(&check(module)).output()?.status.success() {
            return Ok(None);
        }
        let mut cargo = self.cargo(&test(module));
        let output = cargo.args(["-q", "--message-format=json"]).output()?;
        if !output.status.success() {
            return Ok(None);
        }
        Ok(Some(test_programs(&output.stdout)))
    }
}

fn check(module: &Module) -> Vec<&'static str> {
    [&["check", "--lib"][..], &selection(module)].concat()
}

fn test(module: &Module) -> Vec<&'static str> {
    [
        &["test", "--no-run", "--lib", "--tests"][..],
        &selection(module),
    ]
    .concat()
}

/// The package and its features.
fn selection(module: &Module) -> Vec<&'static str> {
    let features = module.features.iter();
    let features = features.flat_map(|feature| ["--features", feature]);
    ["-p", module.package].into_iter().chain(features).collect()
}

/// What cargo and the compiler report, one JSON object a line.
fn messages(output: &[u8]) -> impl Iterator<Item = Value> {
    let lines = output.split(|byte| *byte == b'\n');
    lines.filter_map(|line| serde_json::from_slice(line).ok())
}

/// The test programs that cargo has built, in an order that does not change.
fn test_programs(output: &[u8]) -> Vec<Program> {
    let program = |line: Value| {
        let folder = Path::new(line["manifest_path"].as_str()?).parent()?;
        let path = line["executable"].as_str()?;
        (line["profile"]["test"] == true).then(|| Program {
            path: path.into(),
            folder: folder.to_path_buf(),
        })
    };
    let mut programs: Vec<Program> = messages(output).filter_map(program).collect();
    programs.sort_by(|a, b| a.path.cmp(&b.path));
    programs
}

/// The mutants that an error of the compiler is about.
fn owners(message: &Value, written: &BTreeMap<&str, Instrumented>) -> Result<Vec<Id>> {
    let mut spans = Vec::new();
    collect_spans(message, &mut spans);
    if spans.is_empty() {
        return Ok(Vec::new()); // the closing "aborting due to ..."
    }
    let owners = spans.iter().find_map(|(file, at)| {
        let owners = &written.get(file.as_str())?.owners;
        let around = owners.iter().filter(|(range, _)| range.contains(at));
        around.min_by_key(|(range, _)| range.len())
    });
    match owners {
        Some((_, ids)) => Ok(ids.clone()),
        None => bail!("not an error of a mutant: {}", message["rendered"]),
    }
}

/// Appends all places that a diagnostic names, primary ones first.
fn collect_spans(message: &Value, spans: &mut Vec<(String, usize)>) {
    let of = |message: &Value, primary: bool| -> Vec<(String, usize)> {
        let list = message["spans"].as_array().into_iter().flatten();
        list.filter(|span| span["is_primary"] == primary)
            .filter_map(|span| {
                let at = usize::try_from(span["byte_start"].as_u64()?).ok()?;
                Some((span["file_name"].as_str()?.to_owned(), at))
            })
            .collect()
    };
    spans.extend(of(message, true));
    spans.extend(of(message, false));
    for child in message["children"].as_array().into_iter().flatten() {
        collect_spans(child, spans);
    }
}

/// Removes all files of a folder that are not in `keep`.
fn remove_others(folder: &Path, keep: &HashSet<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let (path, kind) = {
            let entry = entry?;
            (entry.path(), entry.file_type()?)
        };
        if kind.is_dir() {
            remove_others(&path, keep)?;
        } else if !keep.contains(&path) {
            fs::remove_file(&path).with_context(|| path.display().to_string())?;
        }
    }
    Ok(())
}

fn write_if_new(path: &Path, content: &[u8]) -> Result<()> {
    if fs::read(path).is_ok_and(|old| old == content) {
        return Ok(());
    }
    let folder = path.parent().context("a file without a folder")?;
    fs::create_dir_all(folder)?;
    fs::write(path, content).with_context(|| path.display().to_string())
}
