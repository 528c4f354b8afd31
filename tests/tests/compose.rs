//! docker-compose.yml: valid by the schema of the Compose Specification, and true of our programs. No container is
//! run here; what the services themselves do is tested everywhere else.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use harness::python;
use harness::service::program;
use serde_json::Value;

const SERVICES: [&str; 3] = ["order-svc", "inventory-svc", "payment-svc"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The file as JSON, if the schema allows it.
fn compose_file() -> Result<Value> {
    let file = root().join("docker-compose.yml");
    checked(&file)
}

fn checked(file: &Path) -> Result<Value> {
    let schema = Path::new(env!("CARGO_MANIFEST_DIR")).join("schema/compose-spec.json");
    let arguments = [path(&schema)?, path(file)?];
    let json = python::run(Path::new(env!("CARGO_TARGET_TMPDIR")), "check_compose.py", &arguments)?;
    Ok(serde_json::from_str(&json)?)
}

fn path(path: &Path) -> Result<&str> {
    path.to_str().context("a path in UTF-8")
}

fn services(compose: &Value) -> Result<&serde_json::Map<String, Value>> {
    compose["services"].as_object().context("services")
}

fn environment(service: &Value) -> Result<BTreeMap<String, String>> {
    let variables = service["environment"].as_object().context("an environment written as a map")?;
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), ToOwned::to_owned);
    Ok(variables.iter().map(|(name, value)| (name.clone(), text(value))).collect())
}

#[test]
fn the_schema_accepts_it() -> Result<()> {
    compose_file().map(|_| ())
}

#[test]
fn the_schema_refuses_a_planted_mistake() -> Result<()> {
    let planted = Path::new(env!("CARGO_TARGET_TMPDIR")).join("planted-compose.yml");
    let text = std::fs::read_to_string(root().join("docker-compose.yml"))?;
    std::fs::write(
        &planted,
        text.replacen("healthcheck:", "healthchekc:", 1).replacen("ports:", "prots:", 1),
    )?;
    let refused = checked(&planted).expect_err("a misspelt key must be refused");
    ensure!(refused.to_string().contains("prots"), "{refused:#}");
    Ok(())
}

/// A misspelt or missing variable would show only when somebody runs it.
#[test]
fn each_service_gets_the_environment_it_knows_and_needs() -> Result<()> {
    let compose = compose_file()?;
    for name in SERVICES.into_iter().chain(["day"]) {
        let given = environment(&services(&compose)?[name])?;
        let known = known_variables(name)?;
        let unknown: Vec<&String> = given.keys().filter(|variable| !known.contains(*variable)).collect();
        ensure!(unknown.is_empty(), "{name} does not know {unknown:?}; it knows {known:?}");
    }
    for name in SERVICES {
        let given = environment(&services(&compose)?[name])?;
        let printed = print_config(name, &given)?;
        for value in given.values().filter(|value| value.starts_with("http://")) {
            ensure!(
                printed.contains(value.as_str()),
                "{name} --print-config does not show {value}:\n{printed}"
            );
        }
    }
    Ok(())
}

#[test]
fn a_service_says_what_it_misses() -> Result<()> {
    let compose = compose_file()?;
    for name in SERVICES {
        let mut given = environment(&services(&compose)?[name])?;
        given.remove("DATABASE_URL");
        let refused = print_config(name, &given).expect_err("no database");
        ensure!(refused.to_string().contains("DATABASE_URL"), "{name}: {refused:#}");
    }
    Ok(())
}

/// The variables a program reads, from the `[env: NAME=]` of its `--help`.
fn known_variables(name: &str) -> Result<BTreeSet<String>> {
    let help = Command::new(program(name)?).arg("--help").env_clear().output()?;
    let text = String::from_utf8(help.stdout)?;
    let names = text.split("[env: ").skip(1).filter_map(|rest| rest.split(['=', ']']).next());
    Ok(names.map(ToOwned::to_owned).collect())
}

fn print_config(name: &str, environment: &BTreeMap<String, String>) -> Result<String> {
    let done = Command::new(program(name)?).arg("--print-config").env_clear().envs(environment).output()?;
    let errors = String::from_utf8_lossy(&done.stderr);
    ensure!(done.status.success(), "{name} --print-config ended with {}: {errors}", done.status);
    Ok(String::from_utf8(done.stdout)?)
}

#[test]
fn ports_are_published_on_loopback_only() -> Result<()> {
    let compose = compose_file()?;
    for (name, service) in services(&compose)? {
        for port in service["ports"].as_array().into_iter().flatten() {
            let port = port.as_str().context("ports in their short form")?;
            ensure!(port.starts_with("127.0.0.1:"), "{name} publishes {port}");
        }
    }
    Ok(())
}

#[test]
fn images_are_pinned_or_built_from_the_dockerfile() -> Result<()> {
    let compose = compose_file()?;
    let dockerfile = std::fs::read_to_string(root().join("deploy/Dockerfile"))?;
    for (name, service) in services(&compose)? {
        if let Some(image) = service["image"].as_str() {
            let tag = image.split_once(':').map_or("", |(_, tag)| tag);
            ensure!(tag.starts_with(|first: char| first.is_ascii_digit()), "{name} is not pinned: {image}");
        } else {
            let target = service["build"]["target"].as_str().context("a build target")?;
            ensure!(target == name, "{name} is built from target {target}");
            ensure!(dockerfile.contains(&format!(" AS {target}\n")), "the Dockerfile has no target {target}");
        }
    }
    Ok(())
}

#[test]
fn what_is_waited_for_can_become_true_and_what_is_mounted_exists() -> Result<()> {
    let compose = compose_file()?;
    let services = services(&compose)?;
    for (name, service) in services {
        for (on, how) in service["depends_on"].as_object().into_iter().flatten() {
            let other =
                services.get(on).with_context(|| format!("{name} waits for {on}, which is not there"))?;
            let healthy = how["condition"] == "service_healthy";
            ensure!(
                !healthy || other["healthcheck"].is_object(),
                "{name} waits for {on}, which has no health check"
            );
        }
        for volume in service["volumes"].as_array().into_iter().flatten() {
            let from =
                volume.as_str().and_then(|volume| volume.split(':').next()).context("a short volume")?;
            let exists = !from.starts_with('.') || root().join(from).exists();
            ensure!(exists, "{name} mounts {from}, which is not in the checkout");
        }
    }
    Ok(())
}
