//! The layers of docs/ARCHITECTURE.md, checked on what is really there: dependencies from `cargo metadata`, imports
//! and names from the sources' tokens. Each check is also shown to fail on a planted violation, beside its code.
//!
//! Absent: style that rustfmt and clippy look after.

mod arrows;
mod names;
mod sources;
mod tokens;

use std::path::{Path, PathBuf};

/// The checkout.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests/ is in the checkout").to_owned()
}

/// Fails with every violation at once.
fn none_of(violations: &[String]) {
    assert!(violations.is_empty(), "{} violations:\n  {}", violations.len(), violations.join("\n  "));
}

#[test]
fn dependencies_point_one_way() {
    none_of(&arrows::violations(&arrows::of_workspace(&root())));
}

#[test]
fn every_file_imports_only_what_its_layer_may() {
    let files = sources::all(&root());
    none_of(&sources::violations(&files));
}

#[test]
fn every_rule_about_files_still_finds_its_files() {
    let files = sources::all(&root());
    none_of(&sources::rules_without_files(&files));
}

#[test]
fn status_is_built_only_at_the_edge() {
    none_of(&sources::all(&root()).iter().flat_map(sources::built_statuses).collect::<Vec<_>>());
}

#[test]
fn names_say_what_a_thing_is() {
    none_of(&sources::all(&root()).iter().flat_map(names::violations).collect::<Vec<_>>());
}
