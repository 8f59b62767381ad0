//! Printing to stdout. `println!` and `print!` of the harness are these, not those of the standard library, which panic when
//! what is printed cannot be written.

use std::fmt::Arguments;
use std::io::{ErrorKind, Write};

/// What a shell says of a program that ended by SIGPIPE.
const BROKEN_PIPE: i32 = 141;

/// Writes to stdout. If nobody reads it any longer the process ends without a word; if it cannot be written otherwise, with
/// an error.
pub fn write(text: Arguments<'_>) {
    let mut out = std::io::stdout().lock();
    let Err(error) = out.write_fmt(text).and_then(|()| out.flush()) else { return };
    if error.kind() == ErrorKind::BrokenPipe {
        std::process::exit(BROKEN_PIPE);
    }
    eprintln!("writing to stdout: {error}");
    std::process::exit(1);
}

/// Prints to stdout, by [`write()`](crate::instruments::output::write).
#[macro_export]
macro_rules! print {
    ($($words:tt)*) => { $crate::instruments::output::write(format_args!($($words)*)) };
}

/// Prints a line to stdout, by [`write()`](crate::instruments::output::write).
#[macro_export]
macro_rules! println {
    () => { $crate::instruments::output::write(format_args!("\n")) };
    ($($words:tt)*) => { $crate::instruments::output::write(format_args!("{}\n", format_args!($($words)*))) };
}
