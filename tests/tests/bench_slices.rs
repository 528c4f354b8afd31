//! A slice of every bench: that it runs to its end, ends with its line, and that the line says something possible. Whether
//! a figure is good is not asked here: the machine is shared with the other tests, and the slice is small.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use harness::service::program;

/// Runs the bench's slice and holds its last line to its shape; gives the figures.
fn slice<const N: usize>(name: &str, keys: [&str; N]) -> Result<[f64; N]> {
    let output = Command::new(program("bench")?).args([name, "--quick"]).output()?;
    let report = String::from_utf8(output.stdout)?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "bench {name} ended with {}: {errors}\n{report}", output.status);
    figures(name, keys, report.lines().last().unwrap_or_default()).context(report)
}

fn figures<const N: usize>(name: &str, keys: [&str; N], line: &str) -> Result<[f64; N]> {
    let mut words = line.split(' ');
    ensure!(words.next() == Some(name), "the last line is not that of {name}");
    let mut values = [0.0_f64; N];
    for (key, value) in keys.iter().zip(&mut values) {
        let word = words.next().with_context(|| format!("no {key}"))?;
        let (found, figure) = word.split_once('=').with_context(|| format!("{word:?} is no figure"))?;
        ensure!(found == *key, "{found} stands where {key} belongs");
        *value = figure.parse().with_context(|| format!("{word:?} is no number"))?;
        ensure!(value.is_finite() && *value >= 0.0, "{word:?} is impossible");
    }
    ensure!(words.next().is_none(), "more figures than asked for");
    Ok(values)
}

#[test]
fn engine() -> Result<()> {
    let keys = ["sagas_per_s_256", "sagas_per_s_1024", "plain_per_s_256", "ratio_256"];
    let [few, many, plain, ratio] = slice("engine", keys)?;
    assert!(few > 0.0 && many > 0.0 && plain > 0.0);
    assert!((ratio - few / plain).abs() < 0.1, "{ratio} is not {few} / {plain}");
    Ok(())
}

#[test]
fn timers() -> Result<()> {
    let keys = [
        "rss_mb",
        "ready_s",
        "late_p50_ms",
        "late_p99_ms",
        "late_max_ms",
        "burst_per_s",
        "beside_per_s",
        "new_p99_ms",
        "new_p99_ratio",
    ];
    let [resident, ready, p50, p99, max, burst, beside, new, ratio] = slice("timers", keys)?;
    assert!(resident > 1.0 && ready > 0.0 && burst > 0.0 && beside > 0.0 && new > 0.0 && ratio > 0.0);
    assert!(p50 <= p99 && p99 <= max, "{p50} {p99} {max}");
    Ok(())
}

#[test]
fn recovery() -> Result<()> {
    let [in_flight, lease, seconds, unfinished] =
        slice("recovery", ["in_flight", "lease_s", "seconds", "unfinished"])?;
    assert!(in_flight > 0.0);
    // A lease that was renewed a moment before the kill protects for as long as it says, less one heartbeat.
    assert!(seconds > lease / 2.0, "taken over after {seconds} s under a lease of {lease} s");
    assert!(unfinished.abs() < f64::EPSILON, "{unfinished} sagas did not complete");
    Ok(())
}

#[test]
fn idle() -> Result<()> {
    let [statements] = slice("idle", ["statements_per_s"])?;
    assert!(statements > 0.0, "nobody looks for work");
    assert!(statements < 50.0, "{statements} statements a second at rest");
    Ok(())
}
