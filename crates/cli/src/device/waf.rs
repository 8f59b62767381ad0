//! `esker device waf`: a drive's write amplification, from its own counters.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use esker_nvme::{Counters, Drive, DriveError, Page, saved};

use crate::terminal::{Failure, say};
use crate::time::parse as duration;
use crate::top::text::bytes;

/// Shows how many bytes a drive writes to its flash for each byte that it is given: over its life, and over an interval.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  esker device waf /dev/nvme0
  esker device waf /dev/nvme0 --interval 10m --json
  nvme get-log /dev/nvme0 -i 0xca -l 512 > before.txt
  esker device waf --log after.txt --before before.txt
  esker device waf --log ocp.bin --health health.bin --before ocp0.bin --before-health health0.bin

A drive tells by NVMe log pages, which are for root: that of OCP, 0xc0 (flash), with the standard page 0x02 (host), or
its vendor's 0xca (flash and host). Files are what `nvme get-log` saved of them, in binary or as it prints them.
Exit code 0; 1 if the drive or a page does not tell; 2 if the call is wrong.")]
pub(crate) struct Arguments {
    /// The drive, such as /dev/nvme0.
    #[arg(required_unless_present = "log", conflicts_with = "log")]
    device: Option<PathBuf>,
    /// Shows what it writes in this time, too, such as 10m.
    #[arg(long, value_name = "TIME", value_parser = duration, conflicts_with = "log")]
    interval: Option<Duration>,
    /// A saved log page, 0xca or 0xc0, in place of a drive.
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
    /// The same page, saved earlier.
    #[arg(long, value_name = "FILE", requires = "log")]
    before: Option<PathBuf>,
    /// Page 0x02, saved when the log was, if that is page 0xc0, which does not count what the host wrote.
    #[arg(long, value_name = "FILE", requires = "log")]
    health: Option<PathBuf>,
    /// Page 0x02, saved when the earlier log was.
    #[arg(long, value_name = "FILE", requires = "before")]
    before_health: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Counters to print.
struct Shown {
    /// Their period: `lifetime` or the interval.
    name: String,
    counters: Counters,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let shown = match (&arguments.device, &arguments.log) {
        (Some(device), _) => of_drive(device, arguments.interval)?,
        (None, Some(log)) => {
            let now = read_both(log, arguments.health.as_deref())?;
            let before = arguments.before.as_ref();
            let before = before.map(|before| read_both(before, arguments.before_health.as_deref()));
            of_files(now, before.transpose()?)?
        }
        (None, None) => return Err(Failure::Usage("which drive? give one, or --log".to_owned())),
    };
    let text = if arguments.json { json(&shown) } else { lines(&shown) };
    say(&text)
}

fn of_drive(device: &Path, interval: Option<Duration>) -> Result<Vec<Shown>, Failure> {
    let drive = Drive::open(device).map_err(failure)?;
    let before = drive.counters().map_err(failure)?;
    let mut shown = vec![Shown { name: "lifetime".to_owned(), counters: before }];
    if let Some(interval) = interval {
        std::thread::sleep(interval);
        let counters = drive.counters().map_err(failure)?.since(&before).ok_or_else(went_back)?;
        shown.push(Shown { name: format!("{} s", interval.as_secs_f64()), counters });
    }
    Ok(shown)
}

fn of_files(now: Counters, before: Option<Counters>) -> Result<Vec<Shown>, Failure> {
    let mut shown = vec![Shown { name: "lifetime".to_owned(), counters: now }];
    if let Some(before) = before {
        let counters = now.since(&before).ok_or_else(went_back)?;
        shown.push(Shown { name: "interval".to_owned(), counters });
    }
    Ok(shown)
}

/// Reads a saved log page, and the standard page saved with it.
fn read_both(log: &Path, health: Option<&Path>) -> Result<Counters, Failure> {
    let counters = saved(log, None).map_err(failure)?;
    Ok(match health {
        Some(health) => counters.or(saved(health, Some(Page::Health)).map_err(failure)?),
        None => counters,
    })
}

fn failure(error: DriveError) -> Failure {
    match error {
        DriveError::Open { .. } | DriveError::NotNvme(_) => Failure::Usage(error.to_string()),
        _ => Failure::Failed(error.to_string()),
    }
}

fn went_back() -> Failure {
    Failure::Failed("a counter went back: the two are of different drives, or in the wrong order".to_owned())
}

fn lines(shown: &[Shown]) -> String {
    let mut text = String::new();
    let size = |count: Option<u128>| count.map_or("not told".to_owned(), |count| bytes(count as f64));
    for Shown { name, counters } in shown {
        let waf = counters.write_amplification().map_or("not known".to_owned(), |waf| format!("{waf:.4}"));
        let (media, host) = (size(counters.media_bytes), size(counters.host_bytes));
        let _ = writeln!(text, "{name:<10} flash {media:>12}   host {host:>12}   flash / host {waf}");
    }
    text
}

/// No drive reaches the limit.
fn whole(bytes: u128) -> u64 {
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

fn json(shown: &[Shown]) -> String {
    let of = |Shown { counters, .. }: &Shown| {
        serde_json::json!({
            "media_bytes": counters.media_bytes.map(whole),
            "host_bytes": counters.host_bytes.map(whole),
            "waf": counters.write_amplification(),
        })
    };
    let named =
        ["lifetime", "interval"].into_iter().zip(shown).map(|(name, shown)| (name.to_owned(), of(shown)));
    let json = serde_json::Value::Object(named.collect());
    serde_json::to_string_pretty(&json).expect("it is plain numbers") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rows of the coarse-IU white paper, in the form in which `nvme get-log` prints a page; the
    /// second page has more writes.
    fn dump(media: [u8; 2]) -> String {
        let mut page = [0u8; 512];
        page[0..12].copy_from_slice(&[0xf4, 0, 0, 0x64, 0, media[0], media[1], 0x26, 0x02, 0, 0, 0]);
        page[12..24].copy_from_slice(&[0xf5, 0, 0, 0x64, 0, 0x17, 0x02, 0x6f, 0x01, 0, 0, 0]);
        let mut text = "Device:nvme0 log-id:202 namespace-id:0xffffffff\n       0  1  2  3\n".to_owned();
        for (number, line) in page.chunks(16).enumerate() {
            let hex: Vec<String> = line.iter().map(|byte| format!("{byte:02x}")).collect();
            let _ = writeln!(text, "{:04x}: {} \"................\"", number * 16, hex.join(" "));
        }
        text
    }

    fn file_of(text: &[u8]) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), text).expect("it is written");
        file
    }

    #[test]
    fn saved_pages_are_shown_over_life_and_interval() {
        let (before, after) =
            (file_of(dump([0xf0, 0x39]).as_bytes()), file_of(dump([0xf2, 0x3a]).as_bytes()));
        let read = |file: &tempfile::NamedTempFile| read_both(file.path(), None).expect("it is a page");
        let shown = of_files(read(&before), None).expect("it is shown");
        let text = lines(&shown);
        assert!(text.starts_with("lifetime   flash ") && text.ends_with(" flash / host 1.4992\n"), "{text}");
        let shown = of_files(read(&after), Some(read(&before))).expect("it is shown");
        assert_eq!(shown[1].counters.media_bytes, Some(0x102 << 25));
        assert_eq!(shown[1].counters.write_amplification(), None, "the host wrote nothing");
        let json: serde_json::Value = serde_json::from_str(&json(&shown)).expect("it is JSON");
        assert_eq!(json["interval"]["media_bytes"], 0x102u64 << 25);
        assert_eq!(json["interval"]["waf"], serde_json::Value::Null);
    }

    #[test]
    fn drive_without_counters_is_reported_in_one_line() {
        let good = file_of(dump([0xf0, 0x39]).as_bytes());
        let newer = file_of(dump([0xf2, 0x3a]).as_bytes());
        let cut = file_of(dump([0xf0, 0x39]).lines().take(20).collect::<Vec<_>>().join("\n").as_bytes());
        let why = |failure: Failure| match failure {
            Failure::Usage(why) | Failure::Failed(why) => why,
        };
        let refused = |path: &Path| why(read_both(path, None).expect_err("it is refused"));
        assert!(refused(cut.path()).contains("the log page has 288 bytes instead of 512"));
        assert!(refused(file_of(&[0; 512]).path()).contains("no row 0xf4"));
        assert!(refused(Path::new("/nowhere")).starts_with("/nowhere: "));
        let read = |file: &tempfile::NamedTempFile| read_both(file.path(), None).expect("it is a page");
        let backwards = of_files(read(&good), Some(read(&newer))).map(drop).expect_err("it is refused");
        assert!(why(backwards).contains("went back"));
        let no_drive = of_drive(Path::new("/dev/null"), None).map(drop).expect_err("it is refused");
        assert!(why(no_drive).contains("not an NVMe device"));
    }
}
