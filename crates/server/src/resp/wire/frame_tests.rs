//! Tests of the parser with whole, split and broken input.

use bytes::{Bytes, BytesMut};
use proptest::prelude::*;

use super::{Commands, Parser, Unparsed};
use crate::Limits;
use crate::resp::wire::commands::Copied;

type Words = Vec<Vec<u8>>;

/// Feeds the pieces one by one, as a connection does.
fn parse(limits: &Limits, pieces: &[&[u8]]) -> (Vec<Words>, Result<usize, Unparsed>) {
    parse_with_pauses(limits, pieces, usize::MAX)
}

/// As [`parse`], with a pause after each `pause_after` arguments.
fn parse_with_pauses(
    limits: &Limits,
    pieces: &[&[u8]],
    pause_after: usize,
) -> (Vec<Words>, Result<usize, Unparsed>) {
    let mut parser = Parser::new(limits);
    parser.pause_after(pause_after);
    let mut input = BytesMut::new();
    let mut found = Vec::new();
    for piece in pieces {
        input.extend_from_slice(piece);
        loop {
            let mut commands = Commands::default();
            let (consumed, parsed) = parser.parse(&mut input, &mut commands, usize::MAX);
            let data: Bytes = input.split_to(consumed).freeze();
            for index in 0..commands.len() {
                let command = commands.get(index, &data);
                found.push(command.arguments(0).map(<[u8]>::to_vec).collect());
                let copied = Copied::of(command);
                for argument in 0..command.len() {
                    assert_eq!(command.shared(argument), command.argument(argument));
                    assert_eq!(copied.command().argument(argument), command.argument(argument));
                }
            }
            match parsed {
                Ok(()) if parser.is_paused() => {}
                Ok(()) => break,
                Err(Unparsed::TooLong(why)) => found.push(vec![why.into_bytes()]),
                Err(broken) => return (found, Err(broken)),
            }
        }
    }
    (found, Ok(input.len()))
}

fn broken(text: &str) -> Result<usize, Unparsed> {
    Err(Unparsed::Broken(format!("ERR Protocol error: {text}")))
}

fn whole(input: &[u8]) -> (Vec<Words>, Result<usize, Unparsed>) {
    parse(&Limits::default(), &[input])
}

fn words(command: &[&str]) -> Words {
    command.iter().map(|word| word.as_bytes().to_vec()).collect()
}

fn encode(command: &Words) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", command.len()).into_bytes();
    for word in command {
        bytes.extend(format!("${}\r\n", word.len()).bytes());
        bytes.extend(word);
        bytes.extend(b"\r\n");
    }
    bytes
}

#[test]
fn commands_in_a_row() {
    let (found, rest) =
        whole(b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\nPING\r\n\r\n*0\r\n*-1\r\n*1\r\n$0\r\n\r\n*1\r\n$4\r\nPI");
    assert_eq!(found, [words(&["GET", "k"]), words(&["PING"]), words(&[""])]);
    assert_eq!(rest, Ok(b"*1\r\n$4\r\nPI".len()));
}

#[test]
fn inline_words_and_quotes() {
    for (line, expected) in [
        ("set a b", vec!["set", "a", "b"]),
        ("  set \t a  ", vec!["set", "a"]),
        (r#"set "a b" 'c d'"#, vec!["set", "a b", "c d"]),
        (r#"set "\x41\n\"\\" ''"#, vec!["set", "A\n\"\\", ""]),
        (r#"set '\'' "\q\xZZ""#, vec!["set", "'", "qxZZ"]),
        (r#"a"b" c"#, vec!["ab", "c"]),
    ] {
        for end in ["\n", "\r\n"] {
            let (found, rest) = whole(format!("{line}{end}").as_bytes());
            assert_eq!((found, rest), (vec![words(&expected)], Ok(0)), "{line}");
        }
    }
}

#[test]
fn broken_input_is_named_and_commands_before_it_are_kept() {
    let limits = Limits {
        bulk_bytes_max: 100,
        arguments_max: 10,
        command_bytes_max: 150,
        refused_bytes_max: 0,
        ..Limits::default()
    };
    for (input, text) in [
        ("*x\r\n", "invalid multibulk length"),
        ("*11\r\n", "invalid multibulk length"),
        ("*01\r\n", "invalid multibulk length"),
        ("*1000\r\n", "invalid multibulk length"),
        ("*99999999999999999999\r\n", "invalid multibulk length"),
        ("*+1\r\n", "invalid multibulk length"),
        ("*1\n", "invalid multibulk length"),
        ("*1\r\n:1\r\n", "expected '$', got ':'"),
        ("*1\r\n\x01", "expected '$', got '?'"),
        ("*1\r\n$-1\r\n", "invalid bulk length"),
        ("*1\r\n$101\r\n", "invalid bulk length"),
        ("*1\r\n$00\r\n\r\n", "invalid bulk length"),
        ("*1\r\n$01\r\na\r\n", "invalid bulk length"),
        ("*1\r\n$x\r\n", "invalid bulk length"),
        ("*1\r\n$1\r\nabc", "bulk string is not followed by CRLF"),
        ("SET \"a\r\n", "unbalanced quotes in request"),
        ("SET \"a\"b\r\n", "unbalanced quotes in request"),
        ("SET 'a\r\n", "unbalanced quotes in request"),
    ] {
        let (found, rest) = parse(&limits, &[format!("PING\r\n{input}").as_bytes()]);
        assert_eq!(found, [words(&["PING"])], "{input}");
        assert_eq!(rest, broken(text), "{input}");
    }
    let long = format!("*3\r\n$90\r\n{}\r\n$90\r\n", "x".repeat(90));
    assert_eq!(parse(&limits, &[long.as_bytes()]).1, broken("command of more than 150 bytes"));
}

#[test]
fn commands_that_are_too_long_are_passed_by() {
    let limits =
        Limits { bulk_bytes_max: 100, command_bytes_max: 150, refused_bytes_max: 500, ..Limits::default() };
    let word = |length| "x".repeat(length);
    let argument =
        "ERR an argument of 101 bytes is longer than 100, the most that there may be (argument-limit)";
    let command = "ERR a command is longer than 150 bytes, the most that there may be";
    for (long, why) in [
        (vec![word(1), word(101)], argument),
        (vec![word(101)], argument),
        (vec![word(101), word(300), word(0), word(99)], argument),
        (vec![word(90), word(90), word(1)], command),
    ] {
        let long: Words = long.into_iter().map(String::into_bytes).collect();
        let input = [b"PING\r\n".as_slice(), &encode(&long), b"PING\r\n"].concat();
        let expected = [words(&["PING"]), words(&[why]), words(&["PING"])];
        for size in [1, 7, 100, 1000] {
            let pieces: Vec<&[u8]> = input.chunks(size).collect();
            assert_eq!(parse(&limits, &pieces), (expected.to_vec(), Ok(0)), "{size} bytes at a time");
        }
    }
    let endless = encode(&vec![vec![b'x'; 101]; 5]);
    assert_eq!(parse(&limits, &[&endless]), (vec![words(&[argument])], broken("invalid bulk length")));
}

#[test]
fn lines_without_an_end_are_cut_off() {
    for (start, text) in [
        ("", "too big inline request"),
        ("*", "too big mbulk count string"),
        ("*1\r\n$", "too big bulk count string"),
    ] {
        let limits = Limits::default();
        let most = format!("{start}{}", "1".repeat(limits.inline_bytes_max - start.len()));
        let mut pieces = vec![most.as_bytes()];
        assert!(parse(&limits, &pieces).1.is_ok(), "{text}");
        pieces.extend([b"11111111".as_slice(); 2]);
        assert_eq!(parse(&limits, &pieces).1, broken(text));
    }
}

/// A declared length allocates nothing: the parser holds only the arguments that arrived.
#[test]
fn declared_lengths_allocate_nothing() {
    let mut parser = Parser::new(&Limits::default());
    let mut commands = Commands::default();
    let mut input = BytesMut::from(&b"*1048576\r\n$3\r\nSET\r\n$16777216\r\nabc"[..]);
    let capacity = input.capacity();
    assert_eq!(parser.parse(&mut input, &mut commands, usize::MAX), (0, Ok(())));
    assert!(parser.arguments.capacity() <= 4, "{}", parser.arguments.capacity());
    assert_eq!((commands.len(), commands.held_bytes(), input.capacity()), (0, 0, capacity));
}

/// Generates client input: commands of binary words as arrays, inline lines of plain words, blanks, and garbage.
fn input() -> impl Strategy<Value = Vec<u8>> {
    let word = prop_oneof![
        4 => proptest::collection::vec(any::<u8>(), 0..20),
        1 => proptest::collection::vec(Just(b'\r'), 0..4),
        1 => proptest::collection::vec(any::<u8>(), 200..300),
    ];
    let piece = prop_oneof![
        8 => proptest::collection::vec(word, 1..5).prop_map(|command| encode(&command)),
        4 => "[a-z]{1,5}( [a-z0-9]{1,5}){0,3}\r?\n".prop_map(String::into_bytes),
        2 => r#"set "[a-z\\x0-9]{0,6}" '[a-z]{0,3}'"#.prop_map(|line| format!("{line}\r\n").into_bytes()),
        1 => Just(b"*0\r\n\r\n".to_vec()),
        1 => proptest::collection::vec(any::<u8>(), 0..8),
    ];
    proptest::collection::vec(piece, 0..6).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn any_split_gives_the_same_commands(input in input(), cuts in proptest::collection::vec(any::<usize>(), 0..12)) {
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut % (input.len() + 1)).collect();
        cuts.extend([0, input.len()]);
        cuts.sort_unstable();
        let pieces: Vec<&[u8]> = cuts.windows(2).map(|cut| &input[cut[0]..cut[1]]).collect();
        let limits = Limits { inline_bytes_max: 64, bulk_bytes_max: 250, ..Limits::default() };
        let expected = parse(&limits, &[&input]);
        prop_assert_eq!(parse(&limits, &pieces), expected.clone());
        let bytes: Vec<&[u8]> = input.chunks(1).collect();
        prop_assert_eq!(parse(&limits, &bytes), expected.clone());
        for pause_after in [1, 2, 3] {
            prop_assert_eq!(parse_with_pauses(&limits, &pieces, pause_after), expected.clone());
        }
    }

    #[test]
    fn encoded_commands_come_back(commands in proptest::collection::vec(
        proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..40), 1..6), 0..6))
    {
        let input: Vec<u8> = commands.iter().flat_map(encode).collect();
        prop_assert_eq!(whole(&input), (commands, Ok(0)));
    }
}
