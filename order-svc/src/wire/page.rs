//! Page tokens: where the next page begins, and a check that its filters are those of the page before.

use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use crate::{order::OrderId, store::Filter};

const CHECK_BYTES: usize = 8;

/// The token of the page after `last`.
pub(super) fn token(last: OrderId, filter: &Filter) -> String {
    let mut bytes = last.0.as_bytes().to_vec();
    bytes.extend(check(filter));
    hex::encode(bytes)
}

/// Where a token's page begins; `None` if it is none of ours, or of other filters.
pub(super) fn read(token: &str, filter: &Filter) -> Option<OrderId> {
    let bytes = hex::decode(token).ok()?;
    let (id, given) = bytes.split_at_checked(16)?;
    (given == check(filter)).then(|| Uuid::from_slice(id).map(OrderId).ok()).flatten()
}

fn check(filter: &Filter) -> [u8; CHECK_BYTES] {
    let what = format!(
        "{:?}|{:?}|{:?}|{:?}",
        filter.customer_id, filter.request_id, filter.state, filter.cancel_reason
    );
    let hash = Sha256::digest(what.as_bytes());
    std::array::from_fn(|byte| hash[byte])
}
