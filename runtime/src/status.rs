//! Rich gRPC errors: every refusal says who refused (domain), why (reason), and what about (details).
//!
//! This module and the `grpc.rs` of each service are the only places that build a [`Status`].
//! Absent: the reasons themselves. They belong to the services' contract.

use std::{collections::HashMap, time::Duration};
use tonic::{Code, Status};
use tonic_types::{ErrorDetail, ErrorDetails, FieldViolation, StatusExt as _};

/// Details travel base64-encoded in a header; many clients refuse more than 8 KiB of headers, and then the whole
/// error becomes an unreadable one. So details are kept below what makes about 6 KiB there.
const DETAILS_BYTES_MAX: usize = 4_500;
/// The longest message, which travels percent-encoded beside the details.
const MESSAGE_BYTES_MAX: usize = 512;
/// What a detail costs beside its text: tags, lengths.
const OVERHEAD_BYTES: usize = 8;

/// One thing wrong with one field of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Path of the field in the request: `lines[3].quantity`.
    pub field: String,
    /// What is wrong with it, for the caller's developer.
    pub description: String,
}

/// Why a call was refused, as read from a status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reason {
    /// The stable `UPPER_SNAKE` reason.
    pub reason: String,
    /// What the reason is about.
    pub metadata: HashMap<String, String>,
}

/// `INVALID_ARGUMENT` with every violation at once. When they are too many for a response's headers, the last entry
/// says how many were left out.
pub fn invalid_fields(domain: &str, reason: &str, violations: Vec<Violation>) -> Status {
    let message = match violations.as_slice() {
        [] => "the request is invalid".to_owned(),
        [only] => format!("{}: {}", only.field, only.description),
        [first, rest @ ..] => format!("{}: {} (and {} more)", first.field, first.description, rest.len()),
    };
    let mut details = error_info(domain, reason, []);
    let count = violations.len();
    let mut room_bytes = DETAILS_BYTES_MAX;
    let mut shown: Vec<FieldViolation> = Vec::new();
    for Violation { field, description } in violations {
        let cost_bytes = field.len() + description.len() + OVERHEAD_BYTES;
        if cost_bytes > room_bytes {
            shown.push(FieldViolation::new("*", format!("{} more violations", count - shown.len())));
            break;
        }
        room_bytes -= cost_bytes;
        shown.push(FieldViolation::new(field, description));
    }
    details.set_bad_request(shown);
    Status::with_error_details(Code::InvalidArgument, limited(message, MESSAGE_BYTES_MAX), details)
}

/// A refusal: this code, and an `ErrorInfo` with domain, reason and metadata. Metadata that does not fit into a
/// response's headers is cut and ends in `…`.
pub fn refusal(
    code: Code,
    domain: &str,
    reason: &str,
    message: impl Into<String>,
    metadata: impl IntoIterator<Item = (String, String)>,
) -> Status {
    let details = error_info(domain, reason, metadata);
    Status::with_error_details(code, limited(message.into(), MESSAGE_BYTES_MAX), details)
}

/// A refusal that may be asked again after a while.
pub fn retry_later(
    code: Code,
    domain: &str,
    reason: &str,
    message: impl Into<String>,
    retry_after: Duration,
) -> Status {
    let mut details = error_info(domain, reason, []);
    details.set_retry_info(Some(retry_after));
    Status::with_error_details(code, limited(message.into(), MESSAGE_BYTES_MAX), details)
}

/// The reason `domain` gave, if it gave one. A status without it says nothing about whether the work was done.
pub fn reason(status: &Status, domain: &str) -> Option<Reason> {
    status.get_error_details_vec().into_iter().find_map(|detail| match detail {
        ErrorDetail::ErrorInfo(info) if info.domain == domain => {
            Some(Reason { reason: info.reason, metadata: info.metadata })
        }
        _ => None,
    })
}

/// How long the refused caller is asked to wait, if it is.
pub fn retry_after(status: &Status) -> Option<Duration> {
    status.get_details_retry_info()?.retry_delay
}

fn error_info(
    domain: &str,
    reason: &str,
    metadata: impl IntoIterator<Item = (String, String)>,
) -> ErrorDetails {
    let mut room_bytes = DETAILS_BYTES_MAX;
    let mut kept = HashMap::new();
    for (key, value) in metadata {
        room_bytes = room_bytes.saturating_sub(key.len() + OVERHEAD_BYTES);
        let value = limited(value, room_bytes);
        room_bytes = room_bytes.saturating_sub(value.len());
        kept.insert(key, value);
        if room_bytes == 0 {
            break;
        }
    }
    ErrorDetails::with_error_info(reason, domain, kept)
}

fn limited(mut text: String, bytes_max: usize) -> String {
    const CUT: &str = "…";
    if text.len() > bytes_max {
        text.truncate(text.floor_char_boundary(bytes_max.saturating_sub(CUT.len())));
        text.push_str(CUT);
    }
    text
}
