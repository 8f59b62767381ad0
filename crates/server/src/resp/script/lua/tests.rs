//! Runs scripts in an interpreter without a server.

use std::sync::Arc;
use std::time::{Duration, Instant};

use mlua::{LuaString, Value};

use super::errors::{Raised, raised};
use super::sandbox;
use crate::service::scripts::control::{Reins, Stop};

/// Runs a script with ARGV and a time limit. Returns its text, or the error that ended it.
fn run(script: &str, arguments: &[&[u8]], until: Instant) -> Result<String, Raised> {
    let mut interpreter = sandbox::interpreter().unwrap();
    let reins = Arc::new(Reins::default());
    // Compiling is not limited; only the run of the script is.
    reins.begin(Instant::now() + Duration::from_secs(3600), 64 << 20, false);
    sandbox::take_reins(&mut interpreter, &reins, true).unwrap();
    let function =
        sandbox::compile(&interpreter, script.to_owned().into()).map_err(|error| raised(&error))?;
    let lua = interpreter.lua.clone();
    let list =
        |words: &[&[u8]]| lua.create_sequence_from(words.iter().map(|word| LuaString::wrap(*word))).unwrap();
    reins.begin(until, 64 << 20, false);
    let outcome = interpreter.run.call::<(bool, Value)>((&function, list(&[]), list(arguments)));
    match reins.stopped() {
        Some(stop) => Err(Raised::Stop(stop)),
        None => match outcome.map_err(|error| raised(&error))? {
            (true, value) => Ok(value.to_string().unwrap_or_default()),
            (false, value) => Err(Raised::Text(value.to_string().unwrap_or_default().into_bytes())),
        },
    }
}

fn later() -> Instant {
    Instant::now() + Duration::from_secs(3600)
}

/// One call each, with too few instructions for the hook to run. `ARGV[1]` is a mebibyte of `x`, `ARGV[2]` one of
/// digits, `ARGV[3]` one of formats of `struct`, `ARGV[4]` one of comments, `ARGV[5]` one of arrays of JSON.
const CALLS: [&str; 30] = [
    "return #string.upper(ARGV[1])",
    "return #string.lower(ARGV[1])",
    "return #string.reverse(ARGV[1])",
    "return #string.format('%s', ARGV[1])",
    "return #string.format('%q', ARGV[1])",
    "return #string.rep('x', 1000000)",
    "return string.find(ARGV[1], 'xy', 1, true)",
    "return string.find(ARGV[1], 'x-y')",
    "return string.match(ARGV[1], '.-y')",
    "return (string.gsub(ARGV[1], 'y', 'z'))",
    "return string.gmatch(ARGV[1], 'y')()",
    "return #string.dump(loadstring(ARGV[4]))",
    "return tonumber(ARGV[2])",
    "return tonumber(ARGV[2], 10)",
    "return struct.size(ARGV[3])",
    "return struct.pack(ARGV[3])",
    "return struct.unpack(ARGV[3], '')",
    "return struct.unpack('c1000000', ARGV[1])",
    "return struct.pack('s', ARGV[1])",
    "return type(loadstring(ARGV[4]))",
    "local s = ARGV[4] return type(load(function() local t = s s = nil return t end))",
    "return #cjson.encode(ARGV[1])",
    "return type(cjson.decode(ARGV[5]))",
    "return #cmsgpack.pack(ARGV[1])",
    "return #cmsgpack.unpack('\\219\\0\\15\\66\\64' .. ARGV[1])",
    "return redis.sha1hex(ARGV[1])",
    "return #table.concat({ARGV[1], ARGV[1]})",
    "return table.concat({'a', 'b'}, ARGV[1])",
    "local t = {loadstring(ARGV[4]), 1} return type(t)",
    "return #('%s'):format(ARGV[1])",
];

#[test]
fn library_calls_charge_the_time_of_the_script() {
    let mebibyte = |text: &str| text.repeat((1 << 20) / text.len()).into_bytes();
    let json = [b"[".to_vec(), mebibyte("1,"), b"1]".to_vec()].concat();
    let all = [mebibyte("x"), mebibyte("1"), mebibyte("<"), mebibyte("--\n"), json];
    let arguments: Vec<&[u8]> = all.iter().map(Vec::as_slice).collect();
    // The script ends before the hook first runs.
    assert_eq!(run("return #ARGV[1]", &arguments, Instant::now()).unwrap(), "1048576");
    for call in CALLS {
        let ended = run(call, &arguments, Instant::now());
        assert!(matches!(ended, Err(Raised::Stop(Stop::Time))), "{call}: {ended:?}");
    }
}

#[test]
fn library_calls_answer_what_those_of_lua_do() {
    for (script, answer) in [
        ("return ('aBc'):upper() .. ('aBc'):lower() .. ('abc'):reverse()", "ABCabccba"),
        (
            "return string.format('%5.2f|%d|%s|%q|%c|%g', 1/3, 7, 'x', 'a\\nb', 65, 1e-17)",
            " 0.33|7|x|\"a\\\nb\"|A|1e-17",
        ),
        ("return table.concat({1, 'b', 2.5}, ', ')", "1, b, 2.5"),
        (
            "return tostring(tonumber('0x10')) .. tostring(tonumber(' 1e2 ')) .. tostring(tonumber('z', 36))",
            "1610035",
        ),
        (
            "return tostring(tonumber('1x')) .. tostring(tonumber(nil)) .. tostring(tonumber({})) .. tostring(tonumber(''))",
            "nilnilnilnil",
        ),
        ("cjson.encode_invalid_numbers('null') return cjson.encode({1/0})", "[null]"),
        (
            "return tostring(cjson.encode_keep_buffer('off')) .. tostring(cjson.encode_invalid_numbers('on'))",
            "falsetrue",
        ),
        ("local t = {3, 1, 2} table.sort(t) return table.concat(t)", "123"),
        ("local t = {3, 1, 2} table.sort(t, function(a, b) return a > b end) return table.concat(t)", "321"),
        ("local t = {'b', 'a'} table.sort(t, rawequal) return #t", "2"),
        (
            "local co = coroutine.create(function(a) return a + coroutine.yield(a) end) \
          return select(2, coroutine.resume(co, 1)) + select(2, coroutine.resume(co, 2))",
            "4",
        ),
    ] {
        assert_eq!(run(script, &[], later()).unwrap(), answer, "{script}");
    }
}

#[test]
fn errors_of_library_calls_name_the_place_in_the_script() {
    for (call, why) in [
        ("string.upper()", "user_script:2: bad argument #1 to 'upper' (string expected, got no value)"),
        (
            "string.format('%d', 'x')",
            "user_script:2: bad argument #2 to 'format' (number expected, got string)",
        ),
        ("('%d'):format('x')", "user_script:2: bad argument #1 to 'format' (number expected, got string)"),
        ("string.format('%y', 1)", "user_script:2: invalid option '%y' to 'format'"),
        ("table.concat({{}})", "user_script:2: invalid value (table) at index 1 in table for 'concat'"),
        ("tonumber()", "user_script:2: bad argument #1 to 'tonumber' (value expected)"),
        ("tonumber('1', 99)", "user_script:2: bad argument #2 to 'tonumber' (base out of range)"),
        ("table.sort()", "user_script:2: bad argument #1 to 'sort' (table expected, got no value)"),
        ("table.sort({1, {}})", "attempt to compare table with number"),
        (
            "table.sort({3, 2, 1, 4, 5}, function() return true end)",
            "user_script:2: invalid order function for sorting",
        ),
        ("table.sort({2, 1}, function() error('mine') end)", "user_script:2: mine"),
        ("string.gfind('x')", "user_script:2: bad argument #2 to 'gfind' (string expected, got no value)"),
        ("local s = string.rep s()", "user_script:2: bad argument #1 to 's' (string expected, got no value)"),
        ("rawset(1, 2, 3)", "user_script:2: bad argument #1 to 'rawset' (table expected, got number)"),
        (
            "cjson.encode_max_depth(1, 2)",
            "user_script:2: bad argument #2 to 'encode_max_depth' (found too many arguments)",
        ),
        (
            "cjson.encode_invalid_numbers('foo')",
            "user_script:2: bad argument #1 to 'encode_invalid_numbers' (invalid option 'foo')",
        ),
        (
            "cjson.encode_sparse_array(true, 1, 2, 3)",
            "user_script:2: bad argument #4 to 'encode_sparse_array' (found too many arguments)",
        ),
        (
            "cjson.encode_keep_buffer(1)",
            "user_script:2: bad argument #1 to 'encode_keep_buffer' (invalid option '1')",
        ),
        ("coroutine.resume(1)", "user_script:2: bad argument #1 to 'resume' (coroutine expected)"),
    ] {
        // `pcall` returns the raised error.
        let script = format!("local ok, why = pcall(function()\n{call} end) return why");
        let shown = run(&script, &[], later()).unwrap();
        let shown = shown.replace("number with table", "table with number");
        assert_eq!(shown, why, "{call}");
    }
}

#[test]
fn sorting_is_ended_whatever_compares() {
    for less in ["", ", rawequal", ", function(a, b) return a < b end"] {
        let script = format!("local t = {{}} for i = 1, 12 do t[i] = -i end table.sort(t{less}) return #t");
        assert_eq!(run(&script, &[], later()).unwrap(), "12");
        let ended = run(&script, &[], Instant::now());
        assert!(matches!(ended, Err(Raised::Stop(Stop::Time))), "{script}: {ended:?}");
    }
}
