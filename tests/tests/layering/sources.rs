//! Which file may import what: the layers inside a crate.

use std::path::Path;

use super::tokens::{Token, paths_from, shipped, spell, tokens};

/// One Rust file of the workspace.
pub(crate) struct Source {
    /// Relative to the checkout, with `/`.
    pub(crate) path: String,
    /// All of it, tests included.
    pub(crate) tokens: Vec<Token>,
    /// Without its tests: those may import what they like.
    shipped: Vec<Token>,
}

impl Source {
    pub(crate) fn new(path: &str, text: &str) -> Self {
        let tokens = tokens(text);
        let of_tests = path.ends_with("_tests.rs") || path.ends_with("/tests.rs");
        let shipped = if of_tests { Vec::new() } else { shipped(&tokens) };
        Self { path: path.to_owned(), tokens, shipped }
    }
}

/// What the files of a layer must not name.
struct Rule {
    why: &'static str,
    /// Modules (`order-svc/src/order` is order.rs and what is in order/) the rule is about.
    modules: &'static [&'static str],
    /// Modules within those that it is not about.
    except: &'static [&'static str],
    crates: &'static [&'static str],
    /// Modules of the same crate, by their first segment after `crate::`.
    own: &'static [&'static str],
}

/// The outside world: what makes a function impure.
const OUTSIDE: &[&str] = &["tonic", "sqlx", "redis", "tokio"];

const RULES: &[Rule] = &[
    Rule {
        why: "the domain is pure: used alike by live running, recovery, simulation and tests",
        modules: &[
            "order-svc/src/order",
            "inventory-svc/src/reservation",
            "payment-svc/src/payment",
            "saga/src/state",
            "saga/src/decide",
        ],
        except: &[],
        crates: OUTSIDE,
        own: &["grpc", "wire", "store", "stock", "ledger", "journal", "config"],
    },
    Rule {
        why: "wire turns requests into domain types and back; it neither serves nor stores",
        modules: &["order-svc/src/wire", "inventory-svc/src/wire", "payment-svc/src/wire"],
        except: &[],
        crates: &["sqlx", "redis", "tokio"],
        own: &["grpc", "store", "ledger"],
    },
    Rule {
        why: "stores speak the domain's types, not the wire's",
        modules: &[
            "order-svc/src/store",
            "inventory-svc/src/stock",
            "inventory-svc/src/ledger",
            "payment-svc/src/store",
        ],
        except: &[],
        crates: &["tonic", "proto"],
        own: &["grpc", "wire"],
    },
    Rule {
        why: "anyhow is for main.rs and tests: everywhere else an error says what failed",
        modules: &[
            "order-svc/src",
            "inventory-svc/src",
            "payment-svc/src",
            "saga/src",
            "runtime/src",
            "proto/src",
        ],
        except: &["order-svc/src/main", "inventory-svc/src/main", "payment-svc/src/main"],
        crates: &["anyhow"],
        own: &[],
    },
    Rule {
        why: "the harness sees Holdfast from outside",
        modules: &["tests/src"],
        // The benches of the engine are users of the library.
        except: &["tests/src/bin/bench"],
        crates: &["order_svc", "inventory_svc", "payment_svc", "saga"],
        own: &[],
    },
];

/// Files that may build a `tonic::Status`: what leaves a process as an error is decided at its edge.
const EDGES: &[&str] =
    &["order-svc/src/grpc", "inventory-svc/src/grpc", "payment-svc/src/grpc", "runtime/src", "tests/src"];

/// Every Rust file of the workspace's packages.
pub(crate) fn all(root: &Path) -> Vec<Source> {
    let mut found = Vec::new();
    for package in super::arrows::of_workspace(root).keys() {
        let folder = package.strip_prefix("holdfast-").unwrap_or(package);
        for part in ["src", "tests", "benches", "examples", "build.rs"] {
            collect(root, &root.join(folder).join(part), &mut found);
        }
    }
    assert!(found.len() > 20, "the sources were not found under {}", root.display());
    found
}

fn collect(root: &Path, path: &Path, found: &mut Vec<Source>) {
    if path.is_dir() {
        for entry in path.read_dir().expect("a readable folder") {
            collect(root, &entry.expect("a readable entry").path(), found);
        }
    } else if path.extension().is_some_and(|extension| extension == "rs") && path.exists() {
        let relative = path.strip_prefix(root).expect("under the root").to_string_lossy().replace('\\', "/");
        let text = std::fs::read_to_string(path).expect("a readable source");
        found.push(Source::new(&relative, &text));
    }
}

pub(crate) fn violations(files: &[Source]) -> Vec<String> {
    files.iter().flat_map(|file| RULES.iter().flat_map(|rule| breaches(file, rule))).collect()
}

fn breaches(file: &Source, rule: &Rule) -> Vec<String> {
    if !in_any(file, rule.modules) || in_any(file, rule.except) {
        return Vec::new();
    }
    let mut found = Vec::new();
    for name in rule.crates {
        for (line, _) in paths_from(&file.shipped, name) {
            found.push(format!("{}:{line}: uses {name}, but {}", file.path, rule.why));
        }
    }
    for (line, next) in paths_from(&file.shipped, "crate") {
        if let Some(module) = next.filter(|next| rule.own.contains(&next.as_str())) {
            found.push(format!("{}:{line}: uses crate::{module}, but {}", file.path, rule.why));
        }
    }
    found
}

/// A rule about a file that was renamed would hold for ever.
pub(crate) fn rules_without_files(files: &[Source]) -> Vec<String> {
    let named = RULES.iter().flat_map(|rule| rule.modules.iter().chain(rule.except)).chain(EDGES);
    let missing = named.filter(|module| !files.iter().any(|file| in_any(file, &[module])));
    missing.map(|module| format!("no file is in {module}: was it renamed?")).collect()
}

fn in_any(file: &Source, modules: &[&str]) -> bool {
    modules.iter().any(|module| {
        file.path.strip_prefix(module).is_some_and(|rest| rest == ".rs" || rest.starts_with('/'))
    })
}

/// Places outside the edges where a `tonic::Status` is made.
pub(crate) fn built_statuses(file: &Source) -> Vec<String> {
    // A test may play the server.
    if in_any(file, EDGES) || !file.path.contains("/src/") {
        return Vec::new();
    }
    let mut names: Vec<&str> = imported_status_names(&file.shipped);
    names.push("Status");
    let mut found = Vec::new();
    for (at, token) in file.shipped.iter().enumerate() {
        let is_ours = if spell(&file.shipped, at.saturating_sub(3), &["tonic", ":", ":", "Status"]) {
            token.text == "Status"
        } else {
            // Without an import, `Status` is another type of that name.
            names.len() > 1 && names.contains(&token.text.as_str())
        };
        let constructor =
            file.shipped.get(at + 3).is_some_and(|next| next.text.starts_with(char::is_lowercase));
        if is_ours && spell(&file.shipped, at + 1, &[":", ":"]) && constructor {
            found.push(format!("{}:{}: builds a tonic::Status outside grpc.rs", file.path, token.line));
        }
    }
    found
}

/// What `tonic::Status` is called in a file: the name itself, or `X` of `Status as X`.
fn imported_status_names(tokens: &[Token]) -> Vec<&str> {
    let mut found = Vec::new();
    for at in (0..tokens.len()).filter(|at| tokens[*at].text == "use") {
        let statement = tokens[at..]
            .iter()
            .position(|token| token.text == ";")
            .map_or(&tokens[at..], |end| &tokens[at..at + end]);
        if !statement.iter().any(|token| token.text == "tonic") {
            continue;
        }
        for (place, _) in statement.iter().enumerate().filter(|(_, token)| token.text == "Status") {
            let renamed = statement.get(place + 1).is_some_and(|token| token.text == "as");
            found.push(if renamed { statement[place + 2].text.as_str() } else { "Status" });
        }
    }
    found
}

#[cfg(test)]
mod planted {
    use super::{Source, built_statuses, violations};

    #[test]
    fn an_import_across_layers_is_found() {
        for (path, code) in [
            ("order-svc/src/order.rs", "use sqlx::PgPool;"),
            ("order-svc/src/order/lines.rs", "use tokio::time::Instant;"),
            ("inventory-svc/src/reservation.rs", "fn f() -> redis::RedisResult<()> { unreachable!() }"),
            ("payment-svc/src/payment.rs", "use tonic::Status;"),
            ("saga/src/state.rs", "use crate::journal::Journal;"),
            ("order-svc/src/wire.rs", "use crate::grpc::Orders;"),
            ("payment-svc/src/store.rs", "use proto::payment::v1::Payment;"),
            ("order-svc/src/lib.rs", "fn f() -> anyhow::Result<()> { unreachable!() }"),
            ("tests/src/stack.rs", "use order_svc::Config;"),
        ] {
            let found = violations(&[Source::new(path, code)]);
            assert_eq!(found.len(), 1, "{path} {code}: {found:?}");
        }
    }

    #[test]
    fn what_a_layer_may_import_is_not() {
        for (path, code) in [
            ("order-svc/src/order.rs", "use std::collections::BTreeMap; use crate::ids::OrderId;"),
            ("order-svc/src/ordering.rs", "use sqlx::PgPool;"),
            ("order-svc/src/main.rs", "fn main() -> anyhow::Result<()> { Ok(()) }"),
            ("payment-svc/src/grpc.rs", "use tonic::Status; use crate::store::Payments;"),
        ] {
            assert_eq!(violations(&[Source::new(path, code)]), Vec::<String>::new(), "{path} {code}");
        }
    }

    #[test]
    fn a_status_built_inside_is_found() {
        for code in [
            "fn f() { tonic::Status::internal(\"x\"); }",
            "use tonic::Status; fn f() { Status::new(code, \"x\"); }",
            "use tonic::{Code, Status as Refused}; fn f() { Refused::not_found(\"x\"); }",
            "use tonic::Status; fn f() { e.map_err(Status::from_error); }",
        ] {
            let found = built_statuses(&Source::new("order-svc/src/store.rs", code));
            assert_eq!(found.len(), 1, "{code}: {found:?}");
        }
    }

    #[test]
    fn a_status_at_the_edge_or_of_another_kind_is_not() {
        let at_edge = "use tonic::Status; fn f() { Status::internal(\"x\"); }";
        assert_eq!(
            built_statuses(&Source::new("order-svc/src/grpc/orders.rs", at_edge)),
            Vec::<String>::new()
        );
        for code in [
            "enum Status { Paid } fn f() { Status::parse(\"x\"); }",
            "use tonic::Status; fn f(status: &Status) { status.code(); }",
            "use std::process::ExitStatus; fn f() { ExitStatus::default(); }",
        ] {
            assert_eq!(
                built_statuses(&Source::new("order-svc/src/store.rs", code)),
                Vec::<String>::new(),
                "{code}"
            );
        }
    }
}
