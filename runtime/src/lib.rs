//! How a process runs.
