//! Requests into values that cannot be wrong, every violation at once; and values into answers.

use crate::{
    ids::{PaymentId, Reference, RefundKey, Scope},
    money::{Currency, MinorUnits, Money},
    payment::State,
    record::{Charge, Payment, Telling},
    refund::RefundRequest,
};
use chrono::{DateTime, Utc};
use proto::{money::v1 as money, payment::v1 as pb};
use runtime::status::Violation;

const TOKEN_LEN_MAX: usize = 200;
const ID_RULE: &str = "must be 1 to 128 characters of [A-Za-z0-9_.:-]";

/// Everything that is wrong with a request.
pub(crate) type Violations = Vec<Violation>;

/// Reads a charge. `check_token` is the provider's say about the payment token.
pub(crate) fn charge(
    request: pb::ChargeRequest,
    check_token: impl Fn(&str) -> Result<(), &'static str>,
) -> Result<Charge, Violations> {
    let mut violations = Vec::new();
    let payment_id = required("payment_id", PaymentId::parse(&request.payment_id), &mut violations);
    let scope = required("scope", Scope::parse(&request.scope), &mut violations);
    let reference = match request.reference.as_str() {
        "" => None,
        text => required("reference", Reference::parse(text), &mut violations),
    };
    let telling = match pb::charge_request::Report::try_from(request.report) {
        Ok(pb::charge_request::Report::Unspecified) => Telling::Reported,
        Ok(pb::charge_request::Report::Unanswered) => Telling::Answered,
        Err(_) => {
            violate("report", "must be REPORT_UNANSWERED or left out", &mut violations);
            Telling::Reported
        }
    };
    let amount = if let Some(amount) = &request.amount {
        positive(amount, &mut violations)
    } else {
        violate("amount", "is required", &mut violations);
        None
    };
    let token = request.payment_token;
    let token_is_text =
        (1..=TOKEN_LEN_MAX).contains(&token.len()) && token.bytes().all(|b| b.is_ascii_graphic());
    if !token_is_text {
        violate("payment_token", "must be 1 to 200 visible ASCII characters", &mut violations);
    } else if let Err(description) = check_token(&token) {
        violate("payment_token", description, &mut violations);
    }
    match (payment_id, scope, amount) {
        (Some(payment_id), Some(scope), Some(amount)) if violations.is_empty() => {
            Ok(Charge { payment_id, scope, reference, amount, payment_token: token, telling })
        }
        _ => Err(violations),
    }
}

/// Reads a payment id.
pub(crate) fn payment_id(text: &str) -> Result<PaymentId, Violations> {
    only("payment_id", PaymentId::parse(text))
}

/// Reads a scope.
pub(crate) fn scope(text: &str) -> Result<Scope, Violations> {
    only("scope", Scope::parse(text))
}

/// Reads a cancellation: the scope, and the payment to keep.
pub(crate) fn cancel(request: &pb::CancelPaymentRequest) -> Result<(Scope, Option<PaymentId>), Violations> {
    let mut violations = Vec::new();
    let scope = required("scope", Scope::parse(&request.scope), &mut violations);
    let keep = match request.keep_payment_id.as_str() {
        "" => None,
        text => required("keep_payment_id", PaymentId::parse(text), &mut violations),
    };
    match scope {
        Some(scope) if violations.is_empty() => Ok((scope, keep)),
        _ => Err(violations),
    }
}

/// Reads a refund.
pub(crate) fn refund(request: &pb::RefundRequest) -> Result<RefundRequest, Violations> {
    let mut violations = Vec::new();
    let payment_id = required("payment_id", PaymentId::parse(&request.payment_id), &mut violations);
    let key = required("request_id", RefundKey::parse(&request.request_id), &mut violations);
    let amount = request.amount.as_ref().and_then(|amount| positive(amount, &mut violations));
    match (payment_id, key) {
        (Some(payment_id), Some(key)) if violations.is_empty() => {
            Ok(RefundRequest { payment_id, key, amount })
        }
        _ => Err(violations),
    }
}

/// Writes a payment.
pub(crate) fn payment(payment: &Payment) -> pb::Payment {
    let standing = &payment.standing;
    let money = |units| self::money(Money { currency: payment.currency, units });
    pb::Payment {
        payment_id: payment.payment_id.to_string(),
        scope: payment.scope.to_string(),
        reference: payment.reference.as_ref().map(ToString::to_string).unwrap_or_default(),
        amount: Some(money(standing.amount)),
        state: state(standing.state).into(),
        captured: Some(money(standing.captured)),
        refunded: Some(money(standing.refunded)),
        provider_reference: payment.provider_reference.clone(),
        decline_reason: payment.decline_reason.clone(),
        create_time: Some(timestamp(payment.created_at)),
        update_time: Some(timestamp(payment.updated_at)),
    }
}

/// Writes an amount.
pub(crate) fn money(money: Money) -> money::Money {
    money::Money { currency: money.currency.as_str().to_owned(), minor_units: money.units.get() }
}

fn state(state: State) -> pb::payment::State {
    match state {
        State::Processing => pb::payment::State::Processing,
        State::Captured => pb::payment::State::Captured,
        State::Declined => pb::payment::State::Declined,
        State::Cancelled => pb::payment::State::Cancelled,
    }
}

fn timestamp(time: DateTime<Utc>) -> prost_types::Timestamp {
    // Always below a billion: no leap seconds come out of the database.
    let nanos = i32::try_from(time.timestamp_subsec_nanos()).unwrap_or(0);
    prost_types::Timestamp { seconds: time.timestamp(), nanos }
}

fn positive(amount: &money::Money, violations: &mut Violations) -> Option<Money> {
    let currency = Currency::parse(&amount.currency);
    if currency.is_none() {
        violate("amount.currency", "must be three upper case letters (ISO 4217)", violations);
    }
    let units = MinorUnits::new(amount.minor_units).filter(|units| !units.is_zero());
    if units.is_none() {
        violate("amount.minor_units", "must be at least 1", violations);
    }
    Some(Money { currency: currency?, units: units? })
}

fn only<T>(field: &str, parsed: Option<T>) -> Result<T, Violations> {
    let mut violations = Vec::new();
    required(field, parsed, &mut violations).ok_or(violations)
}

fn required<T>(field: &str, parsed: Option<T>, violations: &mut Violations) -> Option<T> {
    if parsed.is_none() {
        violate(field, ID_RULE, violations);
    }
    parsed
}

fn violate(field: &str, description: &str, violations: &mut Violations) {
    violations.push(Violation { field: field.to_owned(), description: description.to_owned() });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(violations: &Violations) -> Vec<&str> {
        violations.iter().map(|v| v.field.as_str()).collect()
    }

    #[test]
    fn every_violation_of_a_charge_is_named_at_once() {
        let request = pb::ChargeRequest {
            payment_id: "a b".into(),
            scope: String::new(),
            reference: "x/y".into(),
            amount: Some(money::Money { currency: "gbp".into(), minor_units: 0 }),
            payment_token: "tok".into(),
            report: 0,
        };
        let violations = charge(request, |_| Err("unknown")).unwrap_err();
        assert_eq!(
            fields(&violations),
            ["payment_id", "scope", "reference", "amount.currency", "amount.minor_units", "payment_token"]
        );
    }

    #[test]
    fn an_empty_charge_and_an_endless_token_are_refused() {
        let violations = charge(pb::ChargeRequest::default(), |_| Ok(())).unwrap_err();
        assert_eq!(fields(&violations), ["payment_id", "scope", "amount", "payment_token"]);
        let request = pb::ChargeRequest {
            payment_id: "p".into(),
            scope: "s".into(),
            reference: String::new(),
            amount: Some(money::Money { currency: "GBP".into(), minor_units: 1 }),
            payment_token: "x".repeat(TOKEN_LEN_MAX + 1),
            report: 0,
        };
        assert_eq!(fields(&charge(request, |_| Ok(())).unwrap_err()), ["payment_token"]);
    }

    #[test]
    fn a_refund_names_an_amount_or_none_but_never_a_wrong_one() {
        let request = |minor_units: Option<i64>| pb::RefundRequest {
            payment_id: "p".into(),
            request_id: "r".into(),
            amount: minor_units.map(|minor_units| money::Money { currency: "GBP".into(), minor_units }),
        };
        assert!(refund(&request(None)).unwrap().amount.is_none());
        assert!(refund(&request(Some(1))).unwrap().amount.is_some());
        for units in [0, -1, i64::MIN] {
            assert_eq!(fields(&refund(&request(Some(units))).unwrap_err()), ["amount.minor_units"]);
        }
    }
}
