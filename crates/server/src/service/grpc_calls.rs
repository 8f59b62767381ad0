//! Calls by method, and failures by code.

use std::sync::atomic::{AtomicU64, Ordering};

use tonic::Code;

use crate::base::counting::count;

const METHODS: [&str; 17] = [
    "Get",
    "Head",
    "MultiGet",
    "Put",
    "Delete",
    "CompareAndSwap",
    "Increment",
    "Touch",
    "Txn",
    "Batch",
    "Scan",
    "Watch",
    "Upload",
    "Download",
    "Stats",
    "health",
    "reflection",
];

const CODES: [&str; 17] = [
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
];

/// Counters of gRPC.
#[derive(Debug, Default)]
pub(crate) struct GrpcCalls {
    calls: [AtomicU64; METHODS.len()],
    failures: [AtomicU64; CODES.len()],
}

impl GrpcCalls {
    pub(crate) fn called(&self, method: &str) {
        if let Some(at) = METHODS.iter().position(|&known| known == method) {
            count(&self.calls[at], 1);
        }
    }

    pub(crate) fn ended(&self, code: Code) {
        if code != Code::Ok {
            count(&self.failures[code as usize], 1);
        }
    }

    pub(crate) fn calls(&self) -> impl Iterator<Item = (&'static str, &'static str, u64)> {
        let calls = self.calls.iter().map(|calls| calls.load(Ordering::Relaxed));
        METHODS.into_iter().zip(calls).map(|(method, calls)| ("method", method, calls))
    }

    pub(crate) fn failures(&self) -> impl Iterator<Item = (&'static str, &'static str, u64)> {
        let failures = self.failures.iter().map(|failures| failures.load(Ordering::Relaxed));
        CODES.into_iter().zip(failures).skip(1).map(|(code, failures)| ("code", code, failures))
    }
}
