//! Requests in the words of a test: SKU, quantity, token. Prices are £1.00 a unit unless a test says otherwise.

use std::time::Duration;

use proto::inventory::v1::{Line, ReceiveStockRequest, ReserveRequest};
use proto::money::v1::Money;
use proto::orders::v1::create_order_request::Payment;
use proto::orders::v1::{CreateOrderRequest, OrderLine, PayLater, PayNow};
use proto::payment::v1::ChargeRequest;

/// Pence of one unit in test orders.
pub const UNIT_PENCE: i64 = 100;

/// Pounds sterling.
pub fn gbp(minor_units: i64) -> Money {
    Money { currency: "GBP".to_owned(), minor_units }
}

/// An order paid at once with `token`.
pub fn pay_now(request_id: &str, lines: &[(&str, i64)], token: &str) -> CreateOrderRequest {
    let payment = Payment::PayNow(PayNow { payment_token: token.to_owned() });
    CreateOrderRequest { payment: Some(payment), ..order(request_id, lines) }
}

/// An order that waits `expire_after` for its payment.
pub fn pay_later(request_id: &str, lines: &[(&str, i64)], expire_after: Duration) -> CreateOrderRequest {
    let payment = Payment::PayLater(PayLater {});
    CreateOrderRequest {
        payment: Some(payment),
        expire_after: Some(lasting(expire_after)),
        ..order(request_id, lines)
    }
}

fn order(request_id: &str, lines: &[(&str, i64)]) -> CreateOrderRequest {
    let lines = lines.iter().map(|&(sku, quantity)| OrderLine {
        sku: sku.to_owned(),
        quantity,
        unit_price: Some(gbp(UNIT_PENCE)),
    });
    CreateOrderRequest { request_id: request_id.to_owned(), lines: lines.collect(), ..Default::default() }
}

/// A reservation with the default hold.
pub fn reserve(reservation_id: &str, lines: &[(&str, i64)]) -> ReserveRequest {
    let lines = lines.iter().map(|&(sku, quantity)| Line { sku: sku.to_owned(), quantity });
    ReserveRequest { reservation_id: reservation_id.to_owned(), lines: lines.collect(), ..Default::default() }
}

/// A reservation that lapses after `hold_for`.
pub fn reserve_for(reservation_id: &str, lines: &[(&str, i64)], hold_for: Duration) -> ReserveRequest {
    ReserveRequest { hold_for: Some(lasting(hold_for)), ..reserve(reservation_id, lines) }
}

/// A purchase arriving.
pub fn receive(request_id: &str, sku: &str, quantity: i64) -> ReceiveStockRequest {
    ReceiveStockRequest {
        sku: sku.to_owned(),
        quantity,
        request_id: request_id.to_owned(),
        reason: "PURCHASE".to_owned(),
    }
}

/// A charge of `minor_units` in `scope`; a report goes to the order `reference` unless that is empty.
pub fn charge(
    payment_id: &str,
    scope: &str,
    reference: &str,
    minor_units: i64,
    token: &str,
) -> ChargeRequest {
    ChargeRequest {
        payment_id: payment_id.to_owned(),
        scope: scope.to_owned(),
        reference: reference.to_owned(),
        amount: Some(gbp(minor_units)),
        payment_token: token.to_owned(),
        report: 0,
    }
}

/// A duration on the wire.
pub fn lasting(duration: Duration) -> prost_types::Duration {
    prost_types::Duration {
        seconds: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        nanos: i32::try_from(duration.subsec_nanos()).unwrap_or(0),
    }
}

/// `request` with the caller's patience set on it, which travels as grpc-timeout.
pub fn within<T>(patience: Duration, request: T) -> tonic::Request<T> {
    let mut request = tonic::Request::new(request);
    request.set_timeout(patience);
    request
}
