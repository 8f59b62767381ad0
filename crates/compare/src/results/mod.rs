//! What came out: the records of all steps, what the goals say of them, and the report with its charts.

pub(crate) mod charts;
pub(crate) mod goals;
pub(crate) mod number;
pub(crate) mod record;
pub(crate) mod report;
