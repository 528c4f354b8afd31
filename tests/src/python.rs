//! Python with the pinned packages of `tests/python`, for second opinions: a gRPC client and a schema checker that
//! share no code with us. Made once per build folder; needs the package index only then.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

const REQUIREMENTS: &str = include_str!("../python/requirements.txt");

/// Runs a script of `tests/python` and returns what it printed. `folder` is the test's `CARGO_TARGET_TMPDIR`.
pub fn run(folder: &Path, script: &str, arguments: &[&str]) -> Result<String> {
    let python = interpreter(folder)?;
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("python").join(script);
    output(Command::new(python).arg(script).args(arguments))
}

/// The interpreter of a venv that holds exactly the pinned packages.
fn interpreter(folder: &Path) -> Result<PathBuf> {
    let venv = folder.join("python");
    let stamp = venv.join("requirements.txt");
    let python = venv.join("bin/python");
    fs::create_dir_all(folder)?;
    // Tests are processes of their own: the first one makes the venv, the others wait for it.
    let lock = File::create(folder.join("python.lock"))?;
    lock.lock()?;
    if fs::read_to_string(&stamp).is_ok_and(|installed| installed == REQUIREMENTS) {
        return Ok(python);
    }
    if venv.exists() {
        fs::remove_dir_all(&venv)?;
    }
    output(Command::new("python3").args(["-m", "venv"]).arg(&venv))
        .context("python3 with its venv module is needed")?;
    let wanted = folder.join("requirements.txt");
    fs::write(&wanted, REQUIREMENTS)?;
    let install =
        ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--only-binary", ":all:", "-r"];
    output(Command::new(&python).args(install).arg(&wanted))?;
    // Last, so that a venv which was interrupted is made again.
    fs::write(&stamp, REQUIREMENTS)?;
    Ok(python)
}

fn output(command: &mut Command) -> Result<String> {
    let program = command.get_program().display().to_string();
    let done = command.output().with_context(|| format!("cannot start {program}"))?;
    let errors = String::from_utf8_lossy(&done.stderr);
    ensure!(done.status.success(), "{program} ended with {}:\n{errors}", done.status);
    Ok(String::from_utf8(done.stdout)?)
}
