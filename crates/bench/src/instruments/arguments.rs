//! Parses command lines in tests.

/// Parses `words` as the arguments of a command.
pub(crate) fn parse<A: clap::Args>(words: &str) -> A {
    let command = A::augment_args(clap::Command::new("test").no_binary_name(true));
    let matches = command.try_get_matches_from(words.split_whitespace()).expect("the arguments are right");
    A::from_arg_matches(&matches).expect("the arguments are right")
}
