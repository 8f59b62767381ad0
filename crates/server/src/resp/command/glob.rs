//! Redis' patterns, which KEYS, SCAN and CONFIG GET take.

/// Whether `text` matches a pattern of `*`, `?`, `[abc]`, `[^a-z]` and `\`-escapes. It steps back only to the last `*`, so
/// its time is at most pattern times text, whatever the pattern.
pub(in crate::resp) fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        let step = match pattern.get(p) {
            Some(b'*') => {
                star = Some((p + 1, t));
                p += 1;
                continue;
            }
            Some(b'?') => Some(1),
            Some(b'[') => one_of(&pattern[p..], text[t]),
            Some(b'\\') if p + 1 < pattern.len() => (pattern[p + 1] == text[t]).then_some(2),
            other => (other == Some(&text[t])).then_some(1),
        };
        if let Some(width) = step {
            p += width;
            t += 1;
        } else if let Some((after, from)) = star {
            star = Some((after, from + 1));
            (p, t) = (after, from + 1);
        } else {
            return false;
        }
    }
    pattern[p..].iter().all(|&byte| byte == b'*')
}

/// The length of the class at the front of the pattern if the byte is one of it. A class without an end goes as far as the
/// pattern does.
fn one_of(class: &[u8], byte: u8) -> Option<usize> {
    let mut at = 1;
    let negated = class.get(at) == Some(&b'^');
    at += usize::from(negated);
    let mut found = false;
    loop {
        match class[at.min(class.len())..] {
            [] => break,
            [b']', ..] => {
                at += 1;
                break;
            }
            [b'\\', escaped, ..] => {
                found |= escaped == byte;
                at += 2;
            }
            [low, b'-', high, ..] => {
                found |= (low.min(high)..=low.max(high)).contains(&byte);
                at += 3;
            }
            [literal, ..] => {
                found |= literal == byte;
                at += 1;
            }
        }
    }
    (found != negated).then_some(at)
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn patterns() {
        for (pattern, text, expected) in [
            ("save", "save", true),
            ("save", "saved", false),
            ("*", "", true),
            ("*", "port", true),
            ("max*", "maxclients", true),
            ("max*s", "maxclients", true),
            ("*a*a*a*b", "aaaaaaaaaa", false),
            ("p?rt", "port", true),
            ("p?rt", "prt", false),
            ("\\*", "*", true),
            ("\\*", "x", false),
            ("", "x", false),
            ("h[ae]llo", "hello", true),
            ("h[ae]llo", "hillo", false),
            ("h[^e]llo", "hallo", true),
            ("h[^e]llo", "hello", false),
            ("h[a-c]llo", "hbllo", true),
            ("h[c-a]llo", "hbllo", true),
            ("h[a-c]llo", "hdllo", false),
            ("[\\]]", "]", true),
            ("[", "x", false),
            ("[x", "x", true),
            ("[^", "x", true),
            ("[]", "x", false),
            ("[a-]", "-", false),
            ("a*[0-9]b", "axx7b", true),
            ("*[", "x", false),
        ] {
            assert_eq!(matches(pattern.as_bytes(), text.as_bytes()), expected, "{pattern} on {text}");
        }
    }
}
