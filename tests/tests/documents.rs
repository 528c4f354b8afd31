//! What the documents claim about the code is true: tests they name exist, links lead somewhere, variables are read.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use harness::service::program;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(path: &str) -> Result<String> {
    std::fs::read_to_string(root().join(path)).with_context(|| format!("cannot read {path}"))
}

/// The texts between backticks that are not blocks of code.
fn quoted(text: &str) -> Vec<&str> {
    text.lines().flat_map(|line| line.split('`').skip(1).step_by(2)).collect()
}

fn files(folder: &Path, extension: &str, found: &mut Vec<PathBuf>) -> Result<()> {
    for entry in folder.read_dir()? {
        let path = entry?.path();
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        if path.is_dir() && name != "target" && !name.starts_with('.') {
            files(&path, extension, found)?;
        } else if path.extension().is_some_and(|found| found == extension) {
            found.push(path);
        }
    }
    Ok(())
}

/// The functions marked as tests in a source.
fn tests_of(source: &str) -> impl Iterator<Item = &str> {
    source.split("test").skip(1).filter_map(|after| {
        let item = after.split_once(']')?.1;
        let name = item.trim_start().trim_start_matches("async ").strip_prefix("fn ")?;
        name.split('(').next()
    })
}

#[test]
fn every_proof_of_a_failure_exists() -> Result<()> {
    let mut sources = Vec::new();
    files(&root(), "rs", &mut sources)?;
    let sources = sources.iter().map(std::fs::read_to_string).collect::<Result<Vec<_>, _>>()?;
    let known: BTreeSet<&str> = sources.iter().flat_map(|source| tests_of(source)).collect();
    ensure!(known.contains("every_proof_of_a_failure_exists"), "tests are not found: {known:?}");
    let text = read("docs/FAILURES.md")?;
    let rows = text.lines().filter(|line| line.starts_with('|') && line.matches('|').count() == 4);
    let mut named = 0;
    for row in rows {
        let proof = row.split('|').nth(3).unwrap_or_default();
        for proof in quoted(proof) {
            named += 1;
            let exists = known.contains(proof) || proof.contains('/') && root().join(proof).exists();
            ensure!(exists, "docs/FAILURES.md names {proof}, which is no test");
        }
    }
    ensure!(named > 30, "only {named} proofs were read");
    Ok(())
}

#[test]
fn every_link_leads_somewhere() -> Result<()> {
    let mut documents = Vec::new();
    files(&root(), "md", &mut documents)?;
    for document in documents {
        let text = std::fs::read_to_string(&document)?;
        for target in text.split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next()) {
            if target.is_empty() || target.contains("://") {
                continue;
            }
            let folder = document.parent().context("a document is in a folder")?;
            ensure!(folder.join(target).exists(), "{} links to {target}", document.display());
        }
    }
    Ok(())
}

/// Rows of the README's table of settings begin with the variable.
#[test]
fn every_setting_in_the_readme_is_read_and_every_setting_read_is_there() -> Result<()> {
    let readme = read("README.md")?;
    let documented: BTreeSet<String> = readme
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split('`').next())
        .filter(|name| name.ends_with("_URL") || name.starts_with("HOLDFAST_") || name.starts_with("OTEL_"))
        .map(ToOwned::to_owned)
        .collect();
    let mut read = BTreeSet::new();
    for service in ["order-svc", "inventory-svc", "payment-svc"] {
        let help = Command::new(program(service)?).arg("--help").env_clear().output()?;
        let help = String::from_utf8(help.stdout)?;
        let names = help.split("[env: ").skip(1).filter_map(|rest| rest.split(['=', ']']).next());
        read.extend(names.map(ToOwned::to_owned));
    }
    assert_eq!(documented, read);
    Ok(())
}
