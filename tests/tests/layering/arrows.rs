//! Which package may depend on which, and which libraries a package must do without.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use cargo_metadata::MetadataCommand;

/// Direct dependencies by package, of all kinds: also a test that reached upwards would tie the layers together.
pub(crate) type Graph = BTreeMap<String, BTreeSet<String>>;

struct Package {
    name: &'static str,
    /// Packages of ours it may depend on.
    ours: &'static [&'static str],
    /// Libraries that would give away what the package is not to know.
    without: &'static [&'static str],
}

const PACKAGES: &[Package] = &[
    Package { name: "holdfast-proto", ours: &[], without: &["sqlx", "redis", "axum", "clap", "anyhow"] },
    Package {
        name: "holdfast-saga",
        ours: &[],
        // The engine knows no transport, no stock gate and no environment variables.
        without: &["tonic", "redis", "clap", "axum", "anyhow"],
    },
    Package { name: "holdfast-runtime", ours: &[], without: &["sqlx", "redis", "anyhow"] },
    Package {
        name: "order-svc",
        ours: &["holdfast-proto", "holdfast-saga", "holdfast-runtime"],
        // It touches stock only through gRPC.
        without: &["redis"],
    },
    Package { name: "inventory-svc", ours: &["holdfast-proto", "holdfast-runtime"], without: &[] },
    Package { name: "payment-svc", ours: &["holdfast-proto", "holdfast-runtime"], without: &["redis"] },
    Package {
        name: "holdfast-tests",
        ours: &[
            "holdfast-proto",
            "holdfast-saga",
            "holdfast-runtime",
            "order-svc",
            "inventory-svc",
            "payment-svc",
        ],
        without: &["mockall", "wiremock"],
    },
];

pub(crate) fn of_workspace(root: &Path) -> Graph {
    let metadata = MetadataCommand::new()
        .manifest_path(root.join("Cargo.toml"))
        .no_deps()
        .other_options(["--locked".to_owned(), "--offline".to_owned()])
        .exec()
        .expect("cargo metadata");
    let packages = metadata.workspace_packages().into_iter();
    packages
        .map(|package| {
            let dependencies = package.dependencies.iter().map(|dependency| dependency.name.clone());
            (package.name.to_string(), dependencies.collect())
        })
        .collect()
}

pub(crate) fn violations(graph: &Graph) -> Vec<String> {
    let mut found = Vec::new();
    for (name, dependencies) in graph {
        let Some(package) = PACKAGES.iter().find(|package| package.name == name) else {
            found.push(format!(
                "{name} has no place in the layers: give it one in tests/tests/layering/arrows.rs"
            ));
            continue;
        };
        for dependency in dependencies {
            // A package's tests may switch on a feature of their own package.
            let is_ours = graph.contains_key(dependency) && dependency != name;
            if is_ours && !package.ours.contains(&dependency.as_str()) {
                found.push(format!("{name} may not depend on {dependency}"));
            }
            if package.without.contains(&dependency.as_str()) {
                found.push(format!("{name} must do without {dependency}"));
            }
        }
    }
    found
}

#[cfg(test)]
mod planted {
    use super::{Graph, violations};

    fn graph(packages: &[(&str, &[&str])]) -> Graph {
        packages
            .iter()
            .map(|(name, on)| ((*name).to_owned(), on.iter().map(ToString::to_string).collect()))
            .collect()
    }

    #[test]
    fn an_arrow_that_points_back_is_found() {
        for (planted, expected) in [
            (
                graph(&[("inventory-svc", &["order-svc"]), ("order-svc", &[])]),
                "inventory-svc may not depend on order-svc",
            ),
            (
                graph(&[("inventory-svc", &["holdfast-saga"]), ("holdfast-saga", &[])]),
                "may not depend on holdfast-saga",
            ),
            (
                graph(&[("holdfast-saga", &["holdfast-proto"]), ("holdfast-proto", &[])]),
                "may not depend on holdfast-proto",
            ),
            (
                graph(&[("order-svc", &["holdfast-tests"]), ("holdfast-tests", &[])]),
                "may not depend on holdfast-tests",
            ),
            (graph(&[("holdfast-saga", &["tonic"])]), "holdfast-saga must do without tonic"),
            (graph(&[("order-svc", &["redis"])]), "order-svc must do without redis"),
            (graph(&[("stray", &[])]), "stray has no place"),
        ] {
            let found = violations(&planted);
            assert_eq!(found.len(), 1, "{found:?}");
            assert!(found[0].contains(expected), "{found:?} does not say {expected}");
        }
    }

    #[test]
    fn the_layers_themselves_are_clean() {
        let layered: &[(&str, &[&str])] = &[
            ("holdfast-proto", &["tonic", "prost"]),
            ("holdfast-saga", &["sqlx", "tokio"]),
            ("holdfast-runtime", &["tonic", "clap"]),
            ("order-svc", &["holdfast-proto", "holdfast-saga", "holdfast-runtime", "sqlx"]),
            ("inventory-svc", &["holdfast-proto", "holdfast-runtime", "redis"]),
            ("holdfast-tests", &["order-svc"]),
        ];
        assert_eq!(violations(&graph(layered)), Vec::<String>::new());
    }
}
