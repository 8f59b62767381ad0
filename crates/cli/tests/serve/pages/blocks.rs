//! Blocks of commands on the pages.

use super::shell::Step;
use super::*;

/// A block whose language is a shell.
#[derive(Debug)]
pub(super) struct Block {
    /// The page, relative to the repository.
    pub(super) page: String,
    /// The number of its first line on the page.
    pub(super) line: usize,
    /// True if it shows a console: commands after `$ `, and the lines that they print.
    pub(super) is_console: bool,
    pub(super) text: String,
}

impl Block {
    /// Returns true if its first line begins with the text.
    pub(super) fn begins(&self, first: &str) -> bool {
        self.text.strip_prefix("$ ").unwrap_or(&self.text).starts_with(first)
    }
}

/// Languages of blocks of commands.
const SHELLS: [&str; 5] = ["sh", "bash", "shell", "zsh", "console"];

/// Returns the blocks of commands of a page.
pub(super) fn blocks(page: &str) -> Vec<Block> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(page);
    blocks_of(page, &std::fs::read_to_string(path).unwrap())
}

pub(super) fn blocks_of(page: &str, text: &str) -> Vec<Block> {
    let (mut blocks, mut lines) = (Vec::new(), text.lines().enumerate());
    while let Some((at, line)) = lines.next() {
        let Some(info) = line.trim_start().strip_prefix("```") else { continue };
        let inside =
            lines.by_ref().map(|(_, line)| line).take_while(|line| !line.trim_start().starts_with("```"));
        let text: Vec<_> = inside.collect();
        let language = info.split([' ', ',']).next().unwrap_or_default();
        if SHELLS.contains(&language) {
            let (page, is_console) = (page.to_owned(), language == "console");
            blocks.push(Block { page, line: at + 2, is_console, text: text.join("\n") });
        }
    }
    blocks
}

/// Returns the commands of a block, with the lines that a console prints.
pub(super) fn steps(block: &Block) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    for line in block.text.lines() {
        if let Some(last) = steps.last_mut()
            && let Some(begun) = last.command.strip_suffix('\\').filter(|_| last.output.is_empty())
        {
            last.command = begun.to_owned() + without_comment(line).trim_start();
            continue;
        }
        let command = if block.is_console { line.strip_prefix("$ ") } else { Some(line) };
        match command.map(without_comment) {
            Some("") => {}
            Some(command) => steps.push(Step { command: command.to_owned(), output: Vec::new() }),
            None => steps.last_mut().expect("a block begins with a command").output.push(line.to_owned()),
        }
    }
    steps
}

/// Returns a command without the comment behind it.
fn without_comment(command: &str) -> &str {
    command.split("   #").next().unwrap_or_default().trim_end()
}

/// Returns README and all pages, relative to the repository.
pub(super) fn pages() -> Vec<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap();
    let (mut pages, mut folders) = (vec!["README.md".to_owned()], vec![root.join("docs")]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                pages.push(path.strip_prefix(&root).unwrap().to_str().unwrap().to_owned());
            }
        }
    }
    pages.sort();
    pages
}
