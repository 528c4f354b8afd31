//! The payment tokens of the simulator.
//!
//! | token | a charge with it |
//! |---|---|
//! | `sim_approve` | captures at once |
//! | `sim_decline` | is declined |
//! | `sim_approve_after_<ms>` | is in process, then captures; found by asking and reported by an event |
//! | `sim_never` | is in process until it is cancelled |
//! | `sim_timeout` | captures, but the call is silent until after the client's limit |
//! | `sim_fail_<n>` | is answered with 500 n times, nothing executed, then captures |
//! | `sim_pays_after_cancel_<ms>` | is in process; a cancel succeeds; captures all the same, and reports it |
//! | `sim_refund_timeout` | captures; each refund is executed, but its first call is silent until after the limit |

/// The longest delay a token can ask for: a day.
const DELAY_MS_MAX: i64 = 86_400_000;
/// The most failures a token can ask for.
const FAILURES_MAX: i32 = 1_000;

/// How a charge behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Behaviour {
    Approve,
    Decline,
    ApproveAfter { ms: i64 },
    Never,
    Silent,
    Fail { times: i32 },
    PaysAfterCancel { ms: i64 },
    SilentRefund,
}

/// Reads a token; otherwise says what is wrong with it.
pub(super) fn parse(text: &str) -> Result<Behaviour, &'static str> {
    match text {
        "sim_approve" => return Ok(Behaviour::Approve),
        "sim_decline" => return Ok(Behaviour::Decline),
        "sim_never" => return Ok(Behaviour::Never),
        "sim_timeout" => return Ok(Behaviour::Silent),
        "sim_refund_timeout" => return Ok(Behaviour::SilentRefund),
        _ => {}
    }
    if let Some(ms) = text.strip_prefix("sim_approve_after_") {
        return delay(ms).map(|ms| Behaviour::ApproveAfter { ms });
    }
    if let Some(ms) = text.strip_prefix("sim_pays_after_cancel_") {
        return delay(ms).map(|ms| Behaviour::PaysAfterCancel { ms });
    }
    if let Some(times) = text.strip_prefix("sim_fail_") {
        return match times.parse() {
            Ok(times) if (1..=FAILURES_MAX).contains(&times) => Ok(Behaviour::Fail { times }),
            _ => Err("the number of failures must be 1 to 1,000"),
        };
    }
    Err("not a token of the simulator")
}

fn delay(text: &str) -> Result<i64, &'static str> {
    match text.parse() {
        Ok(ms) if (0..=DELAY_MS_MAX).contains(&ms) => Ok(ms),
        _ => Err("the delay must be 0 to 86,400,000 ms"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_token_is_read() {
        for (text, behaviour) in [
            ("sim_approve", Behaviour::Approve),
            ("sim_decline", Behaviour::Decline),
            ("sim_approve_after_300", Behaviour::ApproveAfter { ms: 300 }),
            ("sim_never", Behaviour::Never),
            ("sim_timeout", Behaviour::Silent),
            ("sim_fail_3", Behaviour::Fail { times: 3 }),
            ("sim_pays_after_cancel_1000", Behaviour::PaysAfterCancel { ms: 1_000 }),
            ("sim_refund_timeout", Behaviour::SilentRefund),
        ] {
            assert_eq!(parse(text), Ok(behaviour), "{text}");
        }
    }

    #[test]
    fn what_is_no_token_is_refused() {
        for text in [
            "",
            "tok_visa",
            "sim_approve ",
            "sim_fail_0",
            "sim_fail_",
            "sim_fail_1001",
            "sim_approve_after_-1",
            "sim_approve_after_x",
            "sim_pays_after_cancel_86400001",
            "sim_fail_99999999999",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
