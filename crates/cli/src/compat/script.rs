//! Finds the commands that the text of a script names: `redis.call('GET', …)`.

/// Functions of Lua that run a command; the first argument is its name.
const CALLS: [&[u8]; 4] = [b"redis.call", b"redis.pcall", b"server.call", b"server.pcall"];

/// Returns the names in the text with their offsets. A name that the script computes is not found.
pub(super) fn named(text: &[u8]) -> Vec<(usize, &str)> {
    let mut found: Vec<_> = CALLS.iter().flat_map(|call| after(text, call)).collect();
    found.sort_unstable();
    found
}

/// Returns the words in quotes that follow a function's name.
fn after<'t>(text: &'t [u8], call: &[u8]) -> Vec<(usize, &'t str)> {
    let starts = (0..text.len().saturating_sub(call.len())).filter(|at| text[*at..].starts_with(call));
    starts.filter_map(|at| first_word(&text[at + call.len()..]).map(|word| (at, word))).collect()
}

/// Returns the word in quotes that begins a text, behind blanks and an opening bracket.
pub(super) fn first_word(text: &[u8]) -> Option<&str> {
    let text = text.trim_ascii_start();
    let text = text.strip_prefix(b"(").unwrap_or(text).trim_ascii_start();
    let quote = *text.first().filter(|byte| b"'\"`".contains(byte))?;
    let end = text[1..].iter().position(|byte| *byte == quote)?;
    let word = std::str::from_utf8(&text[1..1 + end]).ok()?;
    let is_name =
        !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.".contains(&byte));
    is_name.then_some(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_calls_are_found() {
        let text = br#"local a = redis.call('GET', KEYS[1]) redis.pcall( "hset" , a) server.call'PING' redis.call(a, 'DEL')"#;
        let names: Vec<&str> = named(text).into_iter().map(|(_, name)| name).collect();
        assert_eq!(names, ["GET", "hset", "PING"]);
        assert!(named(b"redis.call(").is_empty() && named(b"redis.call('x y')").is_empty());
    }
}
