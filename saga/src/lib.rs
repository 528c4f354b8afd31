//! The saga engine.
