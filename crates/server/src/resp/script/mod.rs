//! Scripts: Lua programs that call commands on the keys that they declare.
//!
//! From bottom to top: `lua` is the interpreter, `lookup` finds and compiles scripts, `call` implements `redis.call`,
//! `run` runs a script once on a view, and `eval` implements EVAL and its variants. See decision 0021.

pub(super) mod call;
pub(super) mod eval;
pub(super) mod lookup;
pub(super) mod lua;
pub(super) mod run;
