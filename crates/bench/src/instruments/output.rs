//! Prints to stdout. The harness uses these `println!` and `print!` instead of the standard library's,
//! which panic if the output cannot be written.

use std::fmt::Arguments;
use std::io::{ErrorKind, Write};

/// Exit code by which a shell reports the end of a program by SIGPIPE.
const BROKEN_PIPE: i32 = 141;

/// Writes to stdout. If the reader has closed it, the process ends silently; on any other write error it
/// ends with a message.
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
