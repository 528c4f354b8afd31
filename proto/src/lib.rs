//! The contract: messages, services, and the reasons errors carry. Generated from the `.proto` files beside this
//! crate; no conversions and no behaviour live here.

/// `money.v1`.
pub mod money {
    /// Version 1.
    pub mod v1 {
        #![allow(missing_docs, unreachable_pub, clippy::pedantic)]
        tonic::include_proto!("money.v1");
    }
}

/// `orders.v1`.
pub mod orders {
    /// Version 1.
    pub mod v1 {
        #![allow(missing_docs, unreachable_pub, clippy::pedantic)]
        tonic::include_proto!("orders.v1");
    }
}

/// `inventory.v1`.
pub mod inventory {
    /// Version 1.
    pub mod v1 {
        #![allow(missing_docs, unreachable_pub, clippy::pedantic)]
        tonic::include_proto!("inventory.v1");
    }
}

/// `payment.v1`.
pub mod payment {
    /// Version 1.
    pub mod v1 {
        #![allow(missing_docs, unreachable_pub, clippy::pedantic)]
        tonic::include_proto!("payment.v1");
    }
}

pub mod reason;

/// The encoded `FileDescriptorSet` of everything above and its imports, extensions included.
pub const DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/holdfast.binpb"));
