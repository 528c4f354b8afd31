//! Requests turned into types that cannot be wrong, with every violation at once; and answers turned into messages.
//! Absent: `tonic::Status`, and any I/O.

mod answer;

use std::ops::RangeInclusive;

use proto::inventory::v1 as api;
use runtime::status::Violation;

pub use answer::{reservation, stock};

use crate::{
    inventory::ReserveOrder,
    movement::Act,
    reservation::{CallerId, Fingerprint},
    sku::{Line, Lines, Sku, Units},
    stock::ChangeStock,
};

/// Lines of one Reserve, counted before they are merged.
const LINES: RangeInclusive<usize> = 1..=1_500;
/// Units of one line.
const LINE_UNITS: RangeInclusive<i64> = 1..=1_000_000;
const HOLD_DEFAULT_MS: i64 = 30 * 60 * 1_000;
/// 1 s to 400 days.
const HOLD_MS: RangeInclusive<i64> = 1_000..=400 * 24 * 60 * 60 * 1_000;
const REASON_CHARACTERS: RangeInclusive<usize> = 1..=200;
const PAGE_SIZE_DEFAULT: i32 = 100;
const PAGE_SIZE: RangeInclusive<i32> = 1..=1_000;
/// What a page token says before the SKU, so that a token of another list or version is not taken for one of these.
const TOKEN_PREFIX: &str = "stock1:";

/// Everything that is wrong with a request.
pub type Violations = Vec<Violation>;

/// Collects violations while a request is read.
#[derive(Default)]
struct Reader {
    violations: Violations,
}

impl Reader {
    fn wrong(&mut self, field: impl Into<String>, description: &dyn std::fmt::Display) {
        self.violations.push(Violation { field: field.into(), description: description.to_string() });
    }

    fn take<T, E: std::fmt::Display>(&mut self, field: impl Into<String>, parsed: Result<T, E>) -> Option<T> {
        parsed.map_err(|error| self.wrong(field, &error)).ok()
    }

    /// What was read, if nothing was wrong with it or anything else.
    fn finish<T>(self, read: Option<T>) -> Result<T, Violations> {
        match read {
            Some(read) if self.violations.is_empty() => Ok(read),
            _ => Err(self.violations),
        }
    }
}

/// Reads a Reserve.
pub fn reserve(request: &api::ReserveRequest) -> Result<ReserveOrder, Violations> {
    let mut reader = Reader::default();
    let id = reader.take("reservation_id", CallerId::parse(&request.reservation_id));
    let lines = lines(&mut reader, &request.lines);
    let hold_ms = match &request.hold_for {
        None => Some(HOLD_DEFAULT_MS),
        Some(hold_for) => reader.take("hold_for", hold_ms(hold_for)),
    };
    let customer = match request.customer_id.as_str() {
        "" => Some(None),
        customer => reader.take("customer_id", CallerId::parse(customer)).map(Some),
    };
    let read = id.zip(lines).zip(hold_ms).zip(customer);
    let order = read.map(|(((id, lines), hold_ms), customer)| {
        let fingerprint = Fingerprint::of_reservation(customer.as_ref(), &lines);
        ReserveOrder { id, lines, customer, fingerprint, hold_ms }
    });
    reader.finish(order)
}

fn lines(reader: &mut Reader, lines: &[api::Line]) -> Option<Lines> {
    if !LINES.contains(&lines.len()) {
        reader.wrong("lines", &format!("must be 1 to 1,500 lines, not {}", lines.len()));
    }
    let mut read = Vec::with_capacity(lines.len().min(*LINES.end()));
    for (index, line) in lines.iter().enumerate() {
        let sku = reader.take(format!("lines[{index}].sku"), Sku::parse(&line.sku));
        let units = Units::new(line.quantity).filter(|units| LINE_UNITS.contains(&units.get()));
        let units = reader.take(format!("lines[{index}].quantity"), units.ok_or("must be 1 to 1,000,000"));
        read.extend(sku.zip(units).map(|(sku, units)| Line { sku, units }));
    }
    reader.take("lines", Lines::merge(read))
}

fn hold_ms(hold_for: &prost_types::Duration) -> Result<i64, &'static str> {
    let ms = hold_for
        .seconds
        .checked_mul(1_000)
        .and_then(|ms| ms.checked_add(i64::from(hold_for.nanos) / 1_000_000));
    let nanos_fit = (0..1_000_000_000).contains(&hold_for.nanos);
    ms.filter(|ms| nanos_fit && HOLD_MS.contains(ms)).ok_or("must be 1 s to 400 days")
}

/// Reads the reservation id of a Confirm, Release or GetReservation.
pub fn reservation_id(id: &str) -> Result<CallerId, Violations> {
    let mut reader = Reader::default();
    let id = reader.take("reservation_id", CallerId::parse(id));
    reader.finish(id)
}

/// Reads a GetStock.
pub fn sku(sku: &str) -> Result<Sku, Violations> {
    let mut reader = Reader::default();
    let sku = reader.take("sku", Sku::parse(sku));
    reader.finish(sku)
}

/// Reads a ReceiveStock.
pub fn receive(request: &api::ReceiveStockRequest) -> Result<ChangeStock, Violations> {
    let mut reader = Reader::default();
    if Units::new(request.quantity).is_none() {
        reader.wrong("quantity", &"must be 1 to 1,000,000,000");
    }
    change(reader, Act::Receive, &request.sku, request.quantity, &request.request_id, &request.reason)
}

/// Reads an AdjustStock.
pub fn adjust(request: &api::AdjustStockRequest) -> Result<ChangeStock, Violations> {
    let mut reader = Reader::default();
    if request.delta == 0 || !(-Units::MAX..=Units::MAX).contains(&request.delta) {
        reader.wrong("delta", &"must be within ±1,000,000,000 and not 0");
    }
    change(reader, Act::Adjust, &request.sku, request.delta, &request.request_id, &request.reason)
}

fn change(
    mut reader: Reader,
    act: Act,
    sku: &str,
    delta: i64,
    request_id: &str,
    reason: &str,
) -> Result<ChangeStock, Violations> {
    let sku = reader.take("sku", Sku::parse(sku));
    let request_id = reader.take("request_id", CallerId::parse(request_id));
    if !REASON_CHARACTERS.contains(&reason.chars().count()) || reason.chars().any(char::is_control) {
        reader.wrong("reason", &"must be 1 to 200 characters, none of them a control character");
    }
    let read = sku.zip(request_id);
    let change =
        read.map(|(sku, request_id)| ChangeStock { request_id, act, sku, delta, reason: reason.to_owned() });
    reader.finish(change)
}

/// A page to be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// Rows on it.
    pub size: i64,
    /// The SKU the page before ended with.
    pub after: Option<Sku>,
}

/// Reads a ListStock.
pub fn page(request: &api::ListStockRequest) -> Result<Page, Violations> {
    let mut reader = Reader::default();
    let size = if request.page_size == 0 { PAGE_SIZE_DEFAULT } else { request.page_size };
    if !PAGE_SIZE.contains(&size) {
        reader.wrong("page_size", &"must be 1 to 1,000");
    }
    let after = match request.page_token.as_str() {
        "" => Some(None),
        token => reader.take("page_token", read_token(token).ok_or("is not a token of this list")).map(Some),
    };
    reader.finish(after.map(|after| Page { size: size.into(), after }))
}

/// The token of the page after this SKU.
pub fn page_token(last: &Sku) -> String {
    hex::encode(format!("{TOKEN_PREFIX}{last}"))
}

fn read_token(token: &str) -> Option<Sku> {
    let text = String::from_utf8(hex::decode(token).ok()?).ok()?;
    Sku::parse(text.strip_prefix(TOKEN_PREFIX)?).ok()
}

#[cfg(test)]
#[path = "wire_tests.rs"]
mod tests;
