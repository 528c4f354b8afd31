//! Page tokens: where the next page begins, and a check that its filters are those of the page before.

use sha2::{Digest as _, Sha256};
use uuid::Uuid;

const CHECK_BYTES: usize = 8;

/// The token of the page after `last`, with these filters.
pub(super) fn token(last: Uuid, filters: &str) -> String {
    let mut bytes = last.as_bytes().to_vec();
    bytes.extend(check(filters));
    hex::encode(bytes)
}

/// Where a token's page begins; `None` if it is none of ours, or of other filters.
pub(super) fn read(token: &str, filters: &str) -> Option<Uuid> {
    let bytes = hex::decode(token).ok()?;
    let (id, given) = bytes.split_at_checked(16)?;
    (given == check(filters)).then(|| Uuid::from_slice(id).ok()).flatten()
}

fn check(filters: &str) -> [u8; CHECK_BYTES] {
    let hash = Sha256::digest(filters.as_bytes());
    std::array::from_fn(|byte| hash[byte])
}
