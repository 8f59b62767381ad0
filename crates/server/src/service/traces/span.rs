//! A slow request as a span.

use std::time::Duration;

use tonic::Code;

use super::Parent;
use crate::base::address::Address;

/// The protocol of a request, and its outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    Resp {
        /// Commands of a pipeline that ran together, and so share the duration.
        commands: u64,
        /// Error replies of these commands.
        errors: u64,
        /// Time of the confirmation by a cluster that the node still leads, after reads.
        confirmed: Option<Duration>,
    },
    Grpc {
        code: Code,
    },
}

/// A slow request. It has no key, no value and no address.
pub(crate) struct Request<'a> {
    /// The command or the method.
    pub(crate) name: &'static str,
    pub(crate) protocol: Protocol,
    pub(crate) database: u8,
    pub(crate) peer: &'a Address,
    pub(crate) parent: Option<Parent>,
}

/// The span of a request, of constant size.
#[derive(Debug)]
pub(crate) struct Span {
    pub(super) trace: [u8; 16],
    pub(super) id: [u8; 8],
    pub(super) parent: Option<Parent>,
    pub(super) name: &'static str,
    pub(super) protocol: Protocol,
    pub(super) database: u8,
    /// Where the client is: `loopback`, `private`, `public` or `unix`.
    pub(super) client: &'static str,
    /// Nanoseconds since the Unix epoch.
    pub(super) began_ns: u64,
    pub(super) ended_ns: u64,
}

impl Span {
    /// Creates the span of a request that ended `now`, a Unix time. Returns `None` if the system has no random numbers.
    pub(super) fn new(request: Request<'_>, now: Duration, took: Duration) -> Option<Span> {
        let mut random = [0; 24];
        getrandom::fill(&mut random).ok()?;
        let [trace, id] = [&random[..16], &random[16..]];
        let trace = request.parent.map_or_else(|| trace.try_into().ok(), |parent| Some(parent.trace))?;
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        Some(Span {
            trace,
            id: id.try_into().ok()?,
            parent: request.parent,
            name: request.name,
            protocol: request.protocol,
            database: request.database,
            client: request.peer.class(),
            began_ns: nanos(now.saturating_sub(took)),
            ended_ns: nanos(now),
        })
    }

    /// Returns true if the request failed by OpenTelemetry's rules; of gRPC, if the server is the cause.
    pub(super) fn has_failed(&self) -> bool {
        match self.protocol {
            Protocol::Resp { errors, .. } => errors > 0,
            Protocol::Grpc { code } => matches!(
                code,
                Code::Unknown
                    | Code::DeadlineExceeded
                    | Code::Unimplemented
                    | Code::Internal
                    | Code::Unavailable
                    | Code::DataLoss
            ),
        }
    }
}
