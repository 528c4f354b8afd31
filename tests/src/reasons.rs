//! Reading `google.rpc` error details, as any client of the API would: by domain and reason, never by message text.

use std::collections::HashMap;
use std::fmt::Debug;

use tonic::{Code, Response, Status};
use tonic_types::StatusExt;

/// What an error of ours says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The gRPC code.
    pub code: Code,
    /// `ErrorInfo.reason`; empty when the error is not one of ours.
    pub reason: String,
    /// `ErrorInfo.metadata`.
    pub metadata: HashMap<String, String>,
    /// `BadRequest` field names, in the order given.
    pub fields: Vec<String>,
}

impl Refusal {
    /// Reads the details of `status`.
    pub fn of(status: &Status) -> Self {
        let details = status.get_error_details();
        let ours = details.error_info().filter(|info| info.domain == proto::reason::DOMAIN);
        let violations = details.bad_request().map(|bad| bad.field_violations.as_slice()).unwrap_or_default();
        Self {
            code: status.code(),
            reason: ours.map(|info| info.reason.clone()).unwrap_or_default(),
            metadata: ours.map(|info| info.metadata.clone()).unwrap_or_default(),
            fields: violations.iter().map(|violation| violation.field.clone()).collect(),
        }
    }
}

/// The refusal of a call that must not succeed.
///
/// # Panics
/// If it succeeded.
#[track_caller]
pub fn refused<T: Debug>(answer: Result<Response<T>, Status>) -> Refusal {
    match answer {
        Ok(accepted) => panic!("must be refused, was accepted: {:?}", accepted.into_inner()),
        Err(status) => Refusal::of(&status),
    }
}

/// Asserts that a call is refused with this code and reason, and gives its details.
///
/// # Panics
/// If it is not.
#[track_caller]
pub fn assert_refused<T: Debug>(answer: Result<Response<T>, Status>, code: Code, reason: &str) -> Refusal {
    let text = match &answer {
        Ok(_) => String::new(),
        Err(status) => format!("{status:?}"),
    };
    let refusal = refused(answer);
    assert_eq!((refusal.code, refusal.reason.as_str()), (code, reason), "{text}");
    refusal
}
