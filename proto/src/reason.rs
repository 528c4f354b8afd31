//! The stable reasons of `google.rpc.ErrorInfo`. Clients may match on them; they never change meaning.

/// `ErrorInfo.domain` of every error of ours.
pub const DOMAIN: &str = "holdfast";

/// A field is missing or malformed; `BadRequest` lists every violation.
pub const INVALID_FIELD: &str = "INVALID_FIELD";
/// The request id was used before with another body.
pub const REQUEST_ID_REUSED: &str = "REQUEST_ID_REUSED";

/// Fewer units are available than asked for; metadata `skus` names every short SKU.
pub const INSUFFICIENT_STOCK: &str = "INSUFFICIENT_STOCK";
/// The customer would hold and own more than the limit allows.
pub const LIMIT_EXCEEDED: &str = "LIMIT_EXCEEDED";
/// A SKU was never received; metadata `skus` names every one.
pub const UNKNOWN_SKU: &str = "UNKNOWN_SKU";
/// No reservation has this id.
pub const UNKNOWN_RESERVATION: &str = "UNKNOWN_RESERVATION";
/// The partition is not loaded, rebuilding or fenced: nothing was decided.
pub const STOCK_NOT_READY: &str = "STOCK_NOT_READY";
/// The hold lapsed before the call.
pub const RESERVATION_EXPIRED: &str = "RESERVATION_EXPIRED";
/// The units are sold.
pub const RESERVATION_CONFIRMED: &str = "RESERVATION_CONFIRMED";
/// The hold was given back, or released before it was made.
pub const RESERVATION_RELEASED: &str = "RESERVATION_RELEASED";

/// The provider declined the charge.
pub const PAYMENT_DECLINED: &str = "PAYMENT_DECLINED";
/// The payment or its scope was cancelled before.
pub const PAYMENT_CANCELLED: &str = "PAYMENT_CANCELLED";
/// No payment has this id.
pub const UNKNOWN_PAYMENT: &str = "UNKNOWN_PAYMENT";
/// More would be refunded than was captured.
pub const REFUND_EXCEEDS_CAPTURED: &str = "REFUND_EXCEEDS_CAPTURED";
/// The provider cannot be reached or did not answer; the attempt may have happened.
pub const PROVIDER_UNAVAILABLE: &str = "PROVIDER_UNAVAILABLE";

/// No order has this id.
pub const UNKNOWN_ORDER: &str = "UNKNOWN_ORDER";
/// The order's state does not allow it; metadata `state` says which state.
pub const ILLEGAL_TRANSITION: &str = "ILLEGAL_TRANSITION";
/// No saga has this id.
pub const UNKNOWN_SAGA: &str = "UNKNOWN_SAGA";
/// The saga's state does not allow what an operator asked; metadata `state` says which state, `why` says why in words.
pub const SAGA_NOT_OPERABLE: &str = "SAGA_NOT_OPERABLE";
/// The resource changed since the etag was read.
pub const ETAG_MISMATCH: &str = "ETAG_MISMATCH";
/// Load is shed; nothing was begun.
pub const OVERLOADED: &str = "OVERLOADED";
/// The service stops; another one, or this one in a moment, answers.
pub const STOPPING: &str = "STOPPING";
/// The database cannot be reached; ask again with the same request id.
pub const STORE_UNAVAILABLE: &str = "STORE_UNAVAILABLE";
