//! Runs the commands of README and docs/ in a shell, and compares their output with the printed one where a page shows it.
//!
//! Each block of commands is run by the tutorial's test or by a session of `sessions`, or has a row in `not_run`.

use super::*;

mod blocks;
mod not_run;
mod sessions;
mod shell;
mod tutorial;

use blocks::{Block, blocks, blocks_of, pages, steps};
use not_run::NOT_RUN;
use sessions::SESSIONS;
use shell::{Step, is_like};

/// Returns the row of a block that is not run. A row for its first line comes before one for its page.
fn not_run(block: &Block) -> Option<usize> {
    let is_page = |page: &str| block.page == page || page.ends_with('/') && block.page.starts_with(page);
    let rows =
        NOT_RUN.iter().enumerate().filter(|(_, (page, first, _))| is_page(page) && block.begins(first));
    rows.max_by_key(|(_, (_, first, _))| first.len()).map(|(at, _)| at)
}

#[test]
fn every_block_of_commands_is_run_or_has_a_reason() {
    let mut used = vec![false; NOT_RUN.len()];
    for block in pages().iter().flat_map(|page| blocks(page)) {
        let of_page = SESSIONS.iter().filter(|session| session.page == block.page);
        let runs = of_page.flat_map(|session| session.runs()).filter(|first| block.begins(first)).count();
        let is_run = block.page == "docs/tutorial.md" || runs > 0;
        let (page, line) = (&block.page, block.line);
        match not_run(&block) {
            Some(row) => {
                assert!(!is_run, "{page}:{line} is run, and has the row {:?} of not_run", NOT_RUN[row]);
                used[row] = true;
            }
            None => assert!(is_run, "{page}:{line} needs a session that runs it, or a row in not_run"),
        }
    }
    let unused: Vec<_> = NOT_RUN.iter().zip(used).filter(|(_, used)| !used).map(|(row, _)| row).collect();
    assert!(unused.is_empty(), "rows without a block: {unused:?}");
}

#[test]
fn output_that_differs_from_the_page_is_noticed() {
    assert!(is_like("ready resp=1 keys=0", "ready resp=1 keys=0"));
    assert!(is_like("ready resp=1 ms=0.3", "ready resp=1 ms=…"));
    assert!(is_like("a b c", "a … c"));
    assert!(!is_like("ready resp=1 keys=1", "ready resp=1 keys=0"));
    assert!(!is_like("a b d", "a … c"));
    assert!(!is_like("a b c d", "a … c"));
}

#[test]
fn blocks_and_their_commands_are_found() {
    let page = "x\n```console\n$ one \\\n    --more   # why\n1\n$ two &\n```\n```text\n$ not\n```\n```sh,x\nthree   # why\n\n```\n";
    let blocks = blocks_of("page", page);
    let step = |command: &str, output: &[&str]| Step {
        command: command.to_owned(),
        output: output.iter().map(|line| (*line).to_owned()).collect(),
    };
    assert_eq!(blocks.iter().map(|block| block.line).collect::<Vec<_>>(), [3, 12]);
    assert_eq!(steps(&blocks[0]), [step("one --more", &["1"]), step("two &", &[])]);
    assert_eq!(steps(&blocks[1]), [step("three", &[])]);
}
