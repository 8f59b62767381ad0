//! Tests of the in-memory device.
