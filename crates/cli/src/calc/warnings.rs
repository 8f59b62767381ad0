//! Warnings about a plan: consequences that its owner may not expect.

use super::model::{Estimate, Plan};
use crate::top::text::bytes;

/// Share of the fillable space beyond which new keys may find no room without a warning of the server.
const FULL_MOST: f64 = 0.9;
/// Share of a record that is padding, beyond which it is worth a remark.
const PADDING_MOST: f64 = 0.1;
/// Write unit from which a durable write alone, padded to it, is expensive.
const LONG_UNIT_BYTES: u64 = 256 << 10;
/// Time of an opening that service managers do not wait for, in seconds (`DefaultTimeoutStartSec` of systemd).
const START_SECONDS: f64 = 90.0;
/// Warranty period of data sheets in years.
const WARRANTY_YEARS: f64 = 5.0;

/// Returns the warnings, each a sentence with the figure and the remedy.
pub(super) fn of(plan: &Plan, of: &Estimate) -> Vec<String> {
    let size = |number: u64| bytes(number as f64);
    let mut warnings = Vec::new();
    let mut warn = |is: bool, text: String| warnings.extend(is.then_some(text));
    let full = of.live_bytes as f64 / of.user_limit_bytes.max(1) as f64;
    let percent = 100.0 * full;
    warn(
        full > FULL_MOST && plan.drive.bytes.is_some(),
        format!(
            "the drive is {percent:.0} % full; beyond 90 % new keys may find no room: take a larger drive"
        ),
    );
    let share = of.padding_bytes as f64 / of.record_bytes as f64;
    warn(
        share > PADDING_MOST,
        format!(
            "{:.0} % of each record is padding to a multiple of {} bytes, which the size of the store fixes: take a smaller \
             --drive, or store several values under one key",
            100.0 * share,
            of.granule_bytes
        ),
    );
    let unit = plan.drive.unit_bytes;
    warn(
        unit >= LONG_UNIT_BYTES && of.fast_bytes == 0,
        format!(
            "a durable write alone is padded to {}: take a fast tier, or durability = periodic",
            size(unit)
        ),
    );
    warn(
        of.years.is_some_and(|years| years < WARRANTY_YEARS),
        format!(
            "the drive is written to its rating in {:.1} years: take a larger drive or --fast, or write less",
            of.years.unwrap_or(0.0)
        ),
    );
    warn(
        of.rated_bytes.is_some() && plan.writes_per_day.is_none(),
        "the life of the drive is unknown without --writes-per-day".to_owned(),
    );
    warn(
        plan.drive.rated.is_some() && of.rated_bytes.is_none(),
        "--dwpd needs --drive, whose size it counts".to_owned(),
    );
    warn(
        of.opening_seconds > START_SECONDS,
        format!(
            "an opening after a kill takes {:.0} s on two processors, more than systemd waits: set TimeoutStartSec",
            of.opening_seconds
        ),
    );
    warnings
}
