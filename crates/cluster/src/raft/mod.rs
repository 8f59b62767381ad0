//! The adapters to openraft. No other folder names it.

pub(crate) mod codec;
pub(crate) mod error;
pub(crate) mod instance;
mod keyspace;
pub(crate) mod log_store;
pub(crate) mod machine;
pub(crate) mod member;
pub(crate) mod messages;
pub(crate) mod network;
pub(crate) mod replica;
pub(crate) mod runtime;
pub(crate) mod types;
