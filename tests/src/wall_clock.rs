//! A wall clock that a test can step under a running service: a library loaded before libc, compiled here, whose offset
//! stands in a file. The database and the test itself keep the machine's clock.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;

const SOURCE: &str = include_str!("wall_clock.c");

/// A clock that is shared by all processes started with its environment.
#[derive(Debug)]
pub struct WallClock {
    shim: PathBuf,
    offset: PathBuf,
    _folder: TempDir,
}

impl WallClock {
    /// Compiles it; it goes right until it is stepped.
    pub fn new() -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("holdfast-clock-").tempdir_in("/tmp")?;
        let (source, shim) = (folder.path().join("wall_clock.c"), folder.path().join("wall_clock.so"));
        std::fs::write(&source, SOURCE)?;
        let flags = ["-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o"];
        let compiled = Command::new(compiler()?).args(flags).arg(&shim).arg(&source).output()?;
        ensure!(compiled.status.success(), "cc failed: {}", String::from_utf8_lossy(&compiled.stderr));
        let clock = Self { shim, offset: folder.path().join("offset"), _folder: folder };
        clock.step_to(0)?;
        Ok(clock)
    }

    /// What a process needs to go by this clock.
    pub fn environment(&self) -> [(&'static str, String); 2] {
        let text = |path: &Path| path.display().to_string();
        [("LD_PRELOAD", text(&self.shim)), ("WALL_CLOCK_OFFSET", text(&self.offset))]
    }

    /// Steps it, at once and for all its processes, to so many seconds off the machine's clock.
    pub fn step_to(&self, offset_s: i64) -> Result<()> {
        // Renamed into place: a reader sees the old offset or the new one.
        let new = self.offset.with_extension("new");
        std::fs::write(&new, offset_s.to_string())?;
        Ok(std::fs::rename(new, &self.offset)?)
    }
}

fn compiler() -> Result<&'static str> {
    let found = ["cc", "gcc"].into_iter().find(|name| Command::new(name).arg("--version").output().is_ok());
    found.context("no C compiler found: install gcc")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_moves_the_wall_clock_of_a_process() {
        let clock = WallClock::new().unwrap();
        let seconds = || {
            let date = Command::new("date").arg("+%s").envs(clock.environment()).output().unwrap();
            String::from_utf8_lossy(&date.stdout).trim().parse::<i64>().unwrap()
        };
        for offset_s in [0, 3_600, -7_200] {
            clock.step_to(offset_s).unwrap();
            let off = seconds() - chrono::Utc::now().timestamp();
            assert!((off - offset_s).abs() <= 5, "{off} instead of {offset_s}");
        }
    }
}
