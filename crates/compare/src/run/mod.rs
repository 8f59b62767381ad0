//! One program: the machine that it runs on, the limit of its memory, the process, the disk that it takes, and what it printed; and what all of them share.

pub(crate) mod cgroup;
pub(crate) mod child;
pub(crate) mod comparison;
pub(crate) mod machine;
pub(crate) mod parse;
pub(crate) mod rivals;
pub(crate) mod space;
