//! What every use case works with: the book, the provider, and the doorbell of the relay.
//!
//! The use cases are in files named by what they do: `charge`, `ask`, `settle`, `cancel_scope`, `give_back`, `refund`.
//! Each speaks to the provider outside any transaction. Absent: transport.

use crate::{provider::client::ProviderClient, store::Store};
use std::sync::Arc;
use tokio::sync::Notify;

/// The port to payment providers. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Payments {
    pub(crate) store: Store,
    pub(crate) provider: ProviderClient,
    pub(crate) told: Arc<Notify>,
}

impl Payments {
    /// Works on `store` and `provider`.
    pub(crate) fn new(store: Store, provider: ProviderClient) -> Self {
        Self { store, provider, told: Arc::default() }
    }

    /// The book.
    pub(crate) fn store(&self) -> &Store {
        &self.store
    }

    /// The provider.
    pub(crate) fn provider(&self) -> &ProviderClient {
        &self.provider
    }

    /// Returns when a report may have been written.
    pub(crate) async fn wait_for_reports(&self) {
        self.told.notified().await;
    }
}
