//! The adapters to openraft. No other folder names it.

mod codec;
pub(crate) mod log_store;
pub(crate) mod machine;
pub(crate) mod messages;
pub(crate) mod network;
pub(crate) mod replica;
pub(crate) mod runtime;
pub(crate) mod types;
