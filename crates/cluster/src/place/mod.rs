//! Placement: which nodes hold which groups. Pure functions and messages; `node` executes them. See
//! `docs/decisions/0052-placement.md`.
//!
//! * [`report`]: reports of nodes about themselves and the groups that they lead, and the changes that administrators order.
//! * `fleet`: nodes and groups at one moment, and the measures that rank them.
//! * [`forecast`]: the placement and the moves of a cluster that does not exist yet.
//! * `next`: the next placement; `orders`: the conditions of an order; `leaders`: the preferred leader of each group.

pub(crate) mod fleet;
pub mod forecast;
pub(crate) mod leaders;
pub(crate) mod next;
mod orders;
pub mod report;

#[cfg(test)]
mod tests;
