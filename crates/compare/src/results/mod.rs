//! The results: the records of all steps, the outcomes of the goals, and the report with its charts.

pub(crate) mod charts;
pub(crate) mod goals;
pub(crate) mod number;
pub(crate) mod record;
pub(crate) mod report;
