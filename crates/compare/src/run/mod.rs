//! Runs one program: the machine, the memory limit, the process, its disk usage, and its output; and the
//! state shared by all runs.

pub(crate) mod cgroup;
pub(crate) mod child;
pub(crate) mod comparison;
pub(crate) mod machine;
pub(crate) mod parse;
pub(crate) mod rivals;
pub(crate) mod space;
