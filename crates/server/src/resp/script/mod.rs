//! Scripts: functions in Lua that call commands on the keys that they were given.
//!
//! From bottom to top: `lua` is the interpreter, `known` finds and compiles scripts, `call` is what `redis.call` does, `run`
//! runs a script once on a view, and `eval` is EVAL and its kin. See decision 0021.

pub(super) mod call;
pub(super) mod eval;
pub(super) mod lookup;
pub(super) mod lua;
pub(super) mod run;
