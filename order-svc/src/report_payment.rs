//! Takes a report of a payment: it counts for its order, was known already, or is exceptional. Money that counts for
//! no order is given back by a saga that starts in the same transaction.

use std::collections::BTreeMap;

use proto::{money::v1::Money, payment::v1::GetPaymentRequest, reason};
use saga::{Engine, Priority, SagaId, Start, StartError};
use serde_json::json;

use crate::{
    checkout::{
        PAYMENT,
        pay::{self, Reported, own_attempt},
    },
    order::OrderId,
    peers::{Answer, Peers, asking, call},
    refund::{self, Exceptional},
    store::{Locked, Report, Store, StoreError},
};

/// What happened to a payment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReportKind {
    /// The money was captured.
    Captured,
    /// The provider declined.
    Declined,
}

/// A valid report.
#[derive(Debug)]
pub struct PaymentReport {
    /// The order it is for.
    pub order_id: OrderId,
    /// The payment at payment-svc.
    pub payment_id: String,
    /// What happened.
    pub kind: ReportKind,
    /// To how much.
    pub currency: String,
    /// To how much.
    pub amount_minor: i64,
    /// The provider's id of the event.
    pub provider_event_id: String,
}

/// What was made of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Disposition {
    /// It moves the order.
    Applied,
    /// It was known.
    Duplicate,
    /// The money is given back.
    Exceptional,
}

/// What payment-svc says of a reported payment.
#[derive(Debug, Clone)]
pub(crate) struct Facts {
    scope: String,
    /// Whose it is; empty for nobody's.
    reference: String,
    currency: String,
    /// What it keeps: captured less refunded.
    kept_minor: i64,
    captured_minor: i64,
}

/// A report could not be taken.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// payment-svc does not bear it out: nothing was recorded.
    #[error("{0}")]
    NotSo(&'static str),
    /// payment-svc could not be asked: report again.
    #[error("payment-svc cannot be asked: {0}")]
    CannotAsk(String),
    /// No order has this id; it may not be committed yet.
    #[error("there is no such order")]
    UnknownOrder,
    /// Too much is under way; nothing was recorded.
    #[error("too much is under way")]
    Overloaded,
    /// The store failed: report again.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The journal failed: report again.
    #[error(transparent)]
    Journal(#[from] saga::JournalError),
}

/// Takes a report, once. What it says of captured money is asked for at payment-svc: money is not believed on hearsay.
pub async fn report_payment(
    store: &Store,
    engine: &Engine,
    peers: &Peers,
    report: &PaymentReport,
) -> Result<Disposition, ReportError> {
    let facts = match report.kind {
        ReportKind::Captured => Some(ask(peers, report).await?),
        ReportKind::Declined => None,
    };
    let mut transaction = store.begin().await?;
    // Under the order's row lock: the turn of its saga and other payments wait for this, or this for them.
    let order = store.lock(&mut transaction, report.order_id).await?.ok_or(ReportError::UnknownOrder)?;
    let verdict = judge(&order, report, facts.as_ref());
    let (kind, disposition) = match (report.kind, &verdict) {
        (ReportKind::Declined, _) => ("DECLINED", "APPLIED"),
        (ReportKind::Captured, Verdict::Exceptional(_)) => ("CAPTURED", "EXCEPTIONAL"),
        (ReportKind::Captured, _) => ("CAPTURED", "APPLIED"),
    };
    let row = Report {
        order: report.order_id,
        payment_id: &report.payment_id,
        kind,
        currency: &report.currency,
        amount_minor: report.amount_minor,
        provider_event_id: &report.provider_event_id,
        disposition,
    };
    if !store.record_report(&mut transaction, &row).await? {
        return Ok(Disposition::Duplicate);
    }
    let mut refund = None;
    match verdict {
        Verdict::Known => {}
        Verdict::Declined => {
            let payload = json!({ "payment_id": report.payment_id });
            let key = format!("declined.{}", report.payment_id);
            engine.send(&mut transaction, order.saga, &key, DECLINED, &payload).await?;
        }
        Verdict::Counts => {
            store.set_payment(&mut transaction, report.order_id, &report.payment_id).await?;
            let payload = json!(Reported { payment_id: report.payment_id.clone() });
            let key = format!("{PAYMENT}.{}", report.payment_id);
            engine.send(&mut transaction, order.saga, &key, PAYMENT, &payload).await?;
        }
        Verdict::Exceptional(reason) => {
            let saga = SagaId::generate();
            if store.record_exceptional(&mut transaction, &row, reason, saga).await? {
                refund = Some(start_refund(engine, &mut transaction, report, &order, saga).await?);
                tracing::warn!(
                    order.id = %report.order_id, payment.id = report.payment_id, reason,
                    "an exceptional payment is given back"
                );
            }
        }
    }
    transaction.commit().await.map_err(StoreError::from)?;
    engine.nudge(order.saga);
    if let Some(refund) = refund {
        refund.run();
    }
    Ok(match verdict {
        Verdict::Known => Disposition::Duplicate,
        Verdict::Counts | Verdict::Declined => Disposition::Applied,
        Verdict::Exceptional(_) => Disposition::Exceptional,
    })
}

/// The signal that the order's own charge was declined; it only wakes the saga, which asks payment-svc.
const DECLINED: &str = "payment_declined";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    /// This payment counts already.
    Known,
    /// The charge failed; the order may be told.
    Declined,
    /// From now on this payment counts.
    Counts,
    /// It pays for nothing, for this reason.
    Exceptional(&'static str),
}

/// What payment-svc says of the payment, if it bears the report out.
async fn ask(peers: &Peers, report: &PaymentReport) -> Result<Facts, ReportError> {
    let mut payments = peers.payments.clone();
    let request = GetPaymentRequest { payment_id: report.payment_id.clone() };
    let payment = match call(payments.get_payment(asking(request))).await {
        Answer::Ok(payment) => payment,
        Answer::Refused { reason, .. } if reason == reason::UNKNOWN_PAYMENT => {
            return Err(ReportError::NotSo("payment-svc knows no such payment"));
        }
        Answer::Refused { reason, .. } | Answer::Unknown(reason) => {
            return Err(ReportError::CannotAsk(reason));
        }
    };
    let units = |money: Option<Money>| money.map_or(0, |money| money.minor_units);
    let (captured_minor, refunded_minor) = (units(payment.captured), units(payment.refunded));
    let facts = Facts {
        scope: payment.scope,
        reference: payment.reference,
        currency: payment.amount.unwrap_or_default().currency,
        kept_minor: captured_minor - refunded_minor,
        captured_minor,
    };
    if facts.captured_minor == 0 {
        return Err(ReportError::NotSo("payment-svc has not captured it"));
    }
    if (facts.currency.as_str(), facts.captured_minor) != (report.currency.as_str(), report.amount_minor) {
        return Err(ReportError::NotSo("payment-svc has captured another amount"));
    }
    if !facts.reference.is_empty() && facts.reference != report.order_id.to_string() {
        return Err(ReportError::NotSo("the payment is another order's"));
    }
    Ok(facts)
}

fn judge(order: &Locked, report: &PaymentReport, facts: Option<&Facts>) -> Verdict {
    let counts = order.payment_id.as_deref();
    let Some(facts) = facts else { return Verdict::Declined };
    if counts == Some(report.payment_id.as_str()) {
        return Verdict::Known;
    }
    let reported = (report.currency.as_str(), report.amount_minor);
    let kept = (facts.currency.as_str(), facts.kept_minor);
    let asked_for = (order.currency.as_str(), order.total_minor);
    if reported != asked_for || (kept != asked_for && facts.kept_minor != 0) {
        return Verdict::Exceptional("WRONG_AMOUNT");
    }
    if counts.is_some() {
        return Verdict::Exceptional("TWICE");
    }
    if !order.standing.takes_payment() {
        return Verdict::Exceptional("LATE");
    }
    // What was given back already pays for nothing, and what others may cancel without us must not count.
    if facts.kept_minor == 0 || facts.scope != pay::scope(order.saga) {
        return Verdict::Exceptional("FOREIGN");
    }
    // An order that charges a token itself is paid by that charge; any other money comes beside it.
    if order.pays_itself && report.payment_id != own_attempt(order.saga) {
        return Verdict::Exceptional("TWICE");
    }
    Verdict::Counts
}

async fn start_refund(
    engine: &Engine,
    connection: &mut sqlx::PgConnection,
    report: &PaymentReport,
    order: &Locked,
    saga: SagaId,
) -> Result<saga::Started, ReportError> {
    let start = Start {
        saga,
        input: Exceptional { order_id: report.order_id, payment_id: report.payment_id.clone() },
        patience: None,
        attributes: BTreeMap::from([("order.id".to_owned(), report.order_id.to_string())]),
        // The order's own trace tells this too.
        traceparent: order.traceparent.clone(),
        priority: Priority::Ordinary,
    };
    match engine.start_in(connection, refund::KIND, &start).await {
        Ok(started) => Ok(started),
        Err(StartError::Overloaded(_) | StartError::Stopping) => Err(ReportError::Overloaded),
        Err(StartError::Journal(error)) => Err(error.into()),
        Err(error @ (StartError::UnknownKind(_) | StartError::WrongRow(_) | StartError::Refused)) => {
            unreachable!("the engine was given its definitions, and this one has no rows: {error}")
        }
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::order::{CancelReason, OrderEvent, Standing};

    fn order() -> Locked {
        Locked {
            standing: Standing::NEW.after(OrderEvent::Held).unwrap(),
            saga: SagaId(Uuid::nil()),
            currency: "GBP".into(),
            total_minor: 100,
            payment_id: None,
            pays_itself: false,
            traceparent: None,
        }
    }

    fn report() -> PaymentReport {
        PaymentReport {
            order_id: OrderId(Uuid::nil()),
            payment_id: "p".into(),
            kind: ReportKind::Captured,
            currency: "GBP".into(),
            amount_minor: 100,
            provider_event_id: "e".into(),
        }
    }

    fn facts() -> Facts {
        Facts {
            scope: pay::scope(SagaId(Uuid::nil())),
            reference: Uuid::nil().to_string(),
            currency: "GBP".into(),
            kept_minor: 100,
            captured_minor: 100,
        }
    }

    #[test]
    fn money_that_is_gone_or_that_others_may_cancel_never_counts() {
        let gone = Facts { kept_minor: 0, ..facts() };
        let elsewhere = Facts { scope: "shopfront".into(), ..facts() };
        let partly = Facts { kept_minor: 40, ..facts() };
        for (facts, reason) in [(gone, "FOREIGN"), (elsewhere, "FOREIGN"), (partly, "WRONG_AMOUNT")] {
            assert_eq!(judge(&order(), &report(), Some(&facts)), Verdict::Exceptional(reason), "{facts:?}");
        }
    }

    #[test]
    fn the_right_money_in_time_counts() {
        assert_eq!(judge(&order(), &report(), Some(&facts())), Verdict::Counts);
    }

    #[test]
    fn wrong_money_never_counts() {
        let changes: [fn(&mut PaymentReport); 3] = [
            |report| report.amount_minor = 99,
            |report| report.amount_minor = 101,
            |report| report.currency = "EUR".into(),
        ];
        for change in changes {
            let mut wrong = report();
            change(&mut wrong);
            assert_eq!(
                judge(&order(), &wrong, Some(&facts())),
                Verdict::Exceptional("WRONG_AMOUNT"),
                "{wrong:?}"
            );
        }
    }

    #[test]
    fn a_second_payment_is_one_too_many_and_the_first_is_known() {
        let paid = Locked { payment_id: Some("first".into()), ..order() };
        assert_eq!(judge(&paid, &report(), Some(&facts())), Verdict::Exceptional("TWICE"));
        let known = Locked { payment_id: Some("p".into()), ..order() };
        assert_eq!(judge(&known, &report(), Some(&facts())), Verdict::Known);
    }

    #[test]
    fn money_after_the_turn_is_late() {
        let mut closing = order();
        closing.standing = closing.standing.after(OrderEvent::Turned(CancelReason::PaymentExpired)).unwrap();
        assert_eq!(judge(&closing, &report(), Some(&facts())), Verdict::Exceptional("LATE"));
    }

    #[test]
    fn an_order_that_charges_itself_takes_only_its_own_charge() {
        let own = Locked { pays_itself: true, ..order() };
        assert_eq!(judge(&own, &report(), Some(&facts())), Verdict::Exceptional("TWICE"));
        let charged = PaymentReport { payment_id: own_attempt(own.saga), ..report() };
        assert_eq!(judge(&own, &charged, Some(&facts())), Verdict::Counts);
    }
}
