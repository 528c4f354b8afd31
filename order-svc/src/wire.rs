//! Requests become types that cannot be wrong, with every violation named at once; orders become messages.

use std::{collections::BTreeMap, time::Duration};

use chrono::{DateTime, Utc};
use proto::{money::v1::Money as WireMoney, orders::v1 as api};
use runtime::status::Violation;
use uuid::Uuid;

use crate::{
    order::{
        CallerId, CancelReason, Currency, LINE_QUANTITY_MAX, Line, MinorUnits, Money, OrderId, OrderState,
        Payment, PaymentState, Placement, Quantity, SKU_QUANTITY_MAX, Sku,
    },
    report_payment::{Disposition, PaymentReport, ReportKind},
    store::{Filter, Order, Page, Version},
};

mod page;
pub mod sagas;

/// Most lines of an order, counted before merging.
const LINES_MAX: usize = 1_500;
const ID_LENGTH_MAX: usize = 128;
const TOKEN_LENGTH_MAX: usize = 200;
const EXPIRE_AFTER_MIN: Duration = Duration::from_secs(1);
const EXPIRE_AFTER_MAX: Duration = Duration::from_secs(366 * 24 * 60 * 60);
const PAGE_SIZE_DEFAULT: i32 = 100;
const PAGE_SIZE_MAX: i32 = 1_000;

/// Collects what is wrong with a request.
#[derive(Default)]
struct Violations(Vec<Violation>);

impl Violations {
    fn add(&mut self, field: impl Into<String>, description: impl Into<String>) {
        self.0.push(Violation { field: field.into(), description: description.into() });
    }

    fn none_or<T>(self, value: T) -> Result<T, Vec<Violation>> {
        if self.0.is_empty() { Ok(value) } else { Err(self.0) }
    }

    fn caller_id(&mut self, field: &str, id: String) -> CallerId {
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | ':' | '-');
        if id.is_empty() || id.len() > ID_LENGTH_MAX || !id.chars().all(allowed) {
            self.add(field, "must be 1 to 128 characters of [A-Za-z0-9_.:-]");
        }
        CallerId(id)
    }

    fn order_id(&mut self, id: &str) -> OrderId {
        OrderId(Uuid::parse_str(id).unwrap_or_else(|_| {
            self.add("order_id", "must be a UUID");
            Uuid::nil()
        }))
    }

    fn currency(&mut self, field: &str, money: &WireMoney) -> Currency {
        if money.currency.len() != 3 || !money.currency.bytes().all(|byte| byte.is_ascii_uppercase()) {
            self.add(format!("{field}.currency"), "must be three upper case letters");
        }
        Currency(money.currency.clone())
    }
}

/// CreateOrder.
pub fn placement(
    request: api::CreateOrderRequest,
    expire_after_default: Duration,
) -> Result<Placement, Vec<Violation>> {
    let mut violations = Violations::default();
    let request_id = violations.caller_id("request_id", request.request_id);
    let customer_id = if request.customer_id.is_empty() {
        CallerId(String::new())
    } else {
        violations.caller_id("customer_id", request.customer_id)
    };
    let (lines, total) = lines(&mut violations, request.lines);
    let payment = match request.payment {
        Some(api::create_order_request::Payment::PayNow(now)) => {
            let token = now.payment_token;
            if token.is_empty() || token.len() > TOKEN_LENGTH_MAX || token.chars().any(char::is_control) {
                violations.add("pay_now.payment_token", "must be 1 to 200 printable characters");
            }
            Payment::Now(token)
        }
        Some(api::create_order_request::Payment::PayLater(_)) => Payment::Later,
        None => {
            violations.add("payment", "one of pay_now and pay_later must be given");
            Payment::Later
        }
    };
    let expire_after = match request.expire_after.map(Duration::try_from) {
        None => expire_after_default,
        Some(Ok(given)) if (EXPIRE_AFTER_MIN..=EXPIRE_AFTER_MAX).contains(&given) => given,
        Some(_) => {
            violations.add("expire_after", "must be 1 s to 366 days");
            expire_after_default
        }
    };
    violations.none_or(Placement { request_id, customer_id, lines, total, payment, expire_after })
}

fn lines(violations: &mut Violations, lines: Vec<api::OrderLine>) -> (Vec<Line>, Money) {
    let mut total = Money { currency: Currency(String::new()), amount: MinorUnits(0) };
    if lines.is_empty() || lines.len() > LINES_MAX {
        violations.add("lines", format!("must be 1 to 1,500 lines, not {}", lines.len()));
        return (Vec::new(), total);
    }
    let before = violations.0.len();
    let mut units: BTreeMap<String, i64> = BTreeMap::new();
    let mut sum = Some(0_i64);
    let mut parsed = Vec::with_capacity(lines.len());
    for (index, line) in lines.into_iter().enumerate() {
        let field = format!("lines[{index}]");
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, ' ' | '_' | '.' | '-');
        if line.sku.is_empty() || line.sku.len() > ID_LENGTH_MAX || !line.sku.chars().all(allowed) {
            violations.add(format!("{field}.sku"), "must be 1 to 128 characters of [A-Za-z0-9 _.-]");
        }
        if !(1..=LINE_QUANTITY_MAX).contains(&line.quantity) {
            violations.add(format!("{field}.quantity"), "must be 1 to 1,000,000");
        }
        let price = line.unit_price.unwrap_or_default();
        let currency = violations.currency(&format!("{field}.unit_price"), &price);
        if price.minor_units < 0 {
            violations.add(format!("{field}.unit_price.minor_units"), "must not be negative");
        }
        if index == 0 {
            total.currency = currency;
        } else if currency != total.currency {
            violations.add(format!("{field}.unit_price.currency"), "must be the currency of the other lines");
        }
        let of_sku = units.entry(line.sku.clone()).or_default();
        *of_sku = of_sku.saturating_add(line.quantity);
        sum = sum.and_then(|sum| sum.checked_add(line.quantity.checked_mul(price.minor_units)?));
        parsed.push(Line {
            sku: Sku(line.sku),
            quantity: Quantity(line.quantity),
            unit_price: MinorUnits(price.minor_units),
        });
    }
    if let Some((sku, _)) = units.iter().find(|(_, units)| **units > SKU_QUANTITY_MAX) {
        violations.add("lines", format!("must hold at most 1,000,000,000 units of {sku:?}"));
    }
    match sum {
        // The sum of lines that are wrong says nothing.
        _ if violations.0.len() > before => {}
        Some(sum) if sum > 0 => total.amount = MinorUnits(sum),
        Some(_) => violations.add("lines", "must come to at least 1 minor unit"),
        None => violations.add("lines", "come to more than can be counted"),
    }
    (parsed, total)
}

/// GetOrder and WatchOrder.
pub fn order_id(id: &str) -> Result<OrderId, Vec<Violation>> {
    let mut violations = Violations::default();
    let id = violations.order_id(id);
    violations.none_or(id)
}

/// CancelOrder.
pub fn cancellation(
    request: api::CancelOrderRequest,
) -> Result<(OrderId, CallerId, Option<Version>), Vec<Violation>> {
    let mut violations = Violations::default();
    let order_id = violations.order_id(&request.order_id);
    let request_id = violations.caller_id("request_id", request.request_id);
    // An etag that we never gave matches no version.
    let etag = (!request.etag.is_empty()).then(|| Version(request.etag.parse().unwrap_or(-1)));
    violations.none_or((order_id, request_id, etag))
}

/// ReportPayment.
pub fn report(request: api::ReportPaymentRequest) -> Result<PaymentReport, Vec<Violation>> {
    let mut violations = Violations::default();
    let order_id = violations.order_id(&request.order_id);
    let kind = match request.kind() {
        api::report_payment_request::Kind::Captured => ReportKind::Captured,
        api::report_payment_request::Kind::Declined => ReportKind::Declined,
        api::report_payment_request::Kind::Unspecified => {
            violations.add("kind", "must be KIND_CAPTURED or KIND_DECLINED");
            ReportKind::Declined
        }
    };
    let amount = request.amount.unwrap_or_default();
    let currency = violations.currency("amount", &amount);
    if amount.minor_units < 1 {
        violations.add("amount.minor_units", "must be at least 1");
    }
    let payment_id = violations.caller_id("payment_id", request.payment_id);
    let provider_event_id = violations.caller_id("provider_event_id", request.provider_event_id);
    violations.none_or(PaymentReport {
        order_id,
        payment_id: payment_id.0,
        kind,
        currency: currency.0,
        amount_minor: amount.minor_units,
        provider_event_id: provider_event_id.0,
    })
}

/// ListOrders.
pub fn filter(request: api::ListOrdersRequest) -> Result<Filter, Vec<Violation>> {
    let mut violations = Violations::default();
    let state = match api::order::State::try_from(request.state) {
        Ok(api::order::State::Unspecified) => None,
        Ok(state) => OrderState::parse(unprefixed(state.as_str_name(), "STATE_")),
        Err(_) => {
            violations.add("state", "is no state of an order");
            None
        }
    };
    let cancel_reason = match api::order::CancelReason::try_from(request.cancel_reason) {
        Ok(api::order::CancelReason::Unspecified) => None,
        Ok(reason) => CancelReason::parse(unprefixed(reason.as_str_name(), "CANCEL_REASON_")),
        Err(_) => {
            violations.add("cancel_reason", "is no reason of a cancelled order");
            None
        }
    };
    let page_size = match request.page_size {
        0 => PAGE_SIZE_DEFAULT,
        size if (1..=PAGE_SIZE_MAX).contains(&size) => size,
        _ => {
            violations.add("page_size", "must be 1 to 1,000");
            PAGE_SIZE_DEFAULT
        }
    };
    let mut given =
        |field: &str, text: String| (!text.is_empty()).then(|| violations.caller_id(field, text).0);
    let (customer_id, request_id) =
        (given("customer_id", request.customer_id), given("request_id", request.request_id));
    let mut filter =
        Filter { customer_id, request_id, state, cancel_reason, before: None, limit: i64::from(page_size) };
    if !request.page_token.is_empty() {
        match page::read(&request.page_token, &filters_of(&filter)) {
            Some(before) => filter.before = Some(OrderId(before)),
            None => violations.add("page_token", "is no token of a page with these filters"),
        }
    }
    violations.none_or(filter)
}

/// The filters of a list, as one text for its page tokens.
fn filters_of(filter: &Filter) -> String {
    format!("{:?}|{:?}|{:?}|{:?}", filter.customer_id, filter.request_id, filter.state, filter.cancel_reason)
}

/// The answer of ListOrders.
pub fn listed(filter: &Filter, found: &Page) -> api::ListOrdersResponse {
    let next_page_token = match found.orders.last() {
        Some(last) if !found.is_last => page::token(last.order_id.0, &filters_of(filter)),
        _ => String::new(),
    };
    api::ListOrdersResponse { orders: found.orders.iter().map(order).collect(), next_page_token }
}

/// The message of an order.
pub fn order(order: &Order) -> api::Order {
    let money =
        |amount: MinorUnits| WireMoney { currency: order.total.currency.0.clone(), minor_units: amount.0 };
    let line = |line: &Line| api::OrderLine {
        sku: line.sku.0.clone(),
        quantity: line.quantity.0,
        unit_price: Some(money(line.unit_price)),
    };
    let trace_id = order.traceparent.as_deref().and_then(runtime::telemetry::trace_id_of);
    api::Order {
        order_id: order.order_id.to_string(),
        request_id: order.request_id.clone(),
        customer_id: order.customer_id.clone(),
        lines: order.lines.iter().map(line).collect(),
        total: Some(money(order.total.amount)),
        state: state(order.standing.state).into(),
        cancel_reason: order.standing.cancel_reason.map_or(0, |reason| cancel_reason(reason).into()),
        payment_state: payment_state(order.standing.payment).into(),
        refused_skus: order.refused_skus.clone(),
        saga_id: order.saga.to_string(),
        payment_scope: crate::checkout::pay::scope(order.saga),
        trace_id: trace_id.unwrap_or_default().to_owned(),
        create_time: Some(timestamp(order.created_at)),
        update_time: Some(timestamp(order.updated_at)),
        expire_time: Some(timestamp(order.expires_at)),
        etag: order.version.0.to_string(),
    }
}

/// The answer of ReportPayment.
pub fn disposition(disposition: Disposition) -> api::ReportPaymentResponse {
    use api::report_payment_response::Disposition as Wire;
    let disposition = match disposition {
        Disposition::Applied => Wire::Applied,
        Disposition::Duplicate => Wire::Duplicate,
        Disposition::Exceptional => Wire::Exceptional,
    };
    api::ReportPaymentResponse { disposition: disposition.into() }
}

fn state(state: OrderState) -> api::order::State {
    match state {
        OrderState::Pending => api::order::State::Pending,
        OrderState::AwaitingPayment => api::order::State::AwaitingPayment,
        OrderState::Paid => api::order::State::Paid,
        OrderState::Confirmed => api::order::State::Confirmed,
        OrderState::Cancelled => api::order::State::Cancelled,
        OrderState::Returned => api::order::State::Returned,
    }
}

fn cancel_reason(reason: CancelReason) -> api::order::CancelReason {
    match reason {
        CancelReason::InsufficientStock => api::order::CancelReason::InsufficientStock,
        CancelReason::LimitExceeded => api::order::CancelReason::LimitExceeded,
        CancelReason::UnknownSku => api::order::CancelReason::UnknownSku,
        CancelReason::PaymentDeclined => api::order::CancelReason::PaymentDeclined,
        CancelReason::PaymentExpired => api::order::CancelReason::PaymentExpired,
        CancelReason::ReservationExpired => api::order::CancelReason::ReservationExpired,
        CancelReason::Customer => api::order::CancelReason::Customer,
        CancelReason::Operator => api::order::CancelReason::Operator,
        CancelReason::Unavailable => api::order::CancelReason::Unavailable,
    }
}

fn payment_state(state: PaymentState) -> api::order::PaymentState {
    match state {
        PaymentState::Pending => api::order::PaymentState::Pending,
        PaymentState::Captured => api::order::PaymentState::Captured,
        PaymentState::Declined => api::order::PaymentState::Declined,
        PaymentState::NoneKept => api::order::PaymentState::NoneKept,
    }
}

fn timestamp(time: DateTime<Utc>) -> prost_types::Timestamp {
    prost_types::Timestamp {
        seconds: time.timestamp(),
        nanos: i32::try_from(time.timestamp_subsec_nanos()).unwrap_or(999_999_999),
    }
}

fn unprefixed<'n>(name: &'n str, prefix: &str) -> &'n str {
    name.strip_prefix(prefix).unwrap_or(name)
}

#[cfg(test)]
mod tests;
