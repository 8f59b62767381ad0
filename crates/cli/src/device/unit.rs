//! The mapping unit of a device, and its source.

use esker_device::{Array, ArrayUnit, is_indirection_unit};
use esker_engine::DEFAULT_UNIT_BYTES;
use esker_nvme::Namespace;
use serde::Serialize;

use super::array;
use super::block::Block;
use super::measure::Measured;

/// The source of a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Source {
    /// Measured just now.
    Measured,
    /// The drive's answer to Identify.
    Drive,
    /// The kernel's sysfs, which the engine reads too.
    Kernel,
    /// A full stripe of an array with parity, as sysfs describes it.
    Stripe,
    /// The drives of an array without parity.
    Members,
    /// No source: the default.
    Default,
}

/// The write unit of a capacity tier on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Unit {
    #[serde(rename = "unit_bytes")]
    pub(super) bytes: u64,
    #[serde(rename = "unit_from")]
    pub(super) source: Source,
}

impl Unit {
    /// Returns the coarsest unit of the sources: a unit that is too large costs padding, while one that
    /// is too small costs the drive a read and a program for each write. The kernel reports at most the
    /// atomic write size, so Identify may report more.
    pub(super) fn of(device: &Block, namespace: Option<&Namespace>, measured: Option<&Measured>) -> Unit {
        if let Some(bytes) = measured.and_then(|measured| measured.unit_bytes) {
            return Unit { bytes, source: Source::Measured };
        }
        match device.array.as_ref().map(Array::unit) {
            Some(ArrayUnit::Stripe(bytes)) => return Unit { bytes: bytes.into(), source: Source::Stripe },
            Some(ArrayUnit::Drives(Some(bytes))) => {
                return Unit { bytes: bytes.into(), source: Source::Members };
            }
            Some(ArrayUnit::Drives(None) | ArrayUnit::Unsuitable) => {
                return Unit { bytes: DEFAULT_UNIT_BYTES, source: Source::Default };
            }
            None => {}
        }
        let told = namespace.and_then(|namespace| namespace.write_granularity_bytes);
        let told = told.filter(|bytes| is_indirection_unit(*bytes));
        match (device.queue.reported_unit_bytes, told) {
            (Some(reported), told) if told.is_none_or(|told| told <= reported) => {
                Unit { bytes: reported, source: Source::Kernel }
            }
            (_, Some(told)) => Unit { bytes: told, source: Source::Drive },
            (_, None) => Unit { bytes: DEFAULT_UNIT_BYTES, source: Source::Default },
        }
    }

    /// Returns the source in words.
    pub(super) fn reason(&self, array: Option<&Array>) -> String {
        let of = |say: fn(&Array) -> String| array.map(say).unwrap_or_default();
        let reason = match self.source {
            Source::Measured => "measured just now",
            Source::Drive => "the drive reports it (NPWG), but the kernel reports less; set iu",
            Source::Kernel => "the device reports it",
            Source::Stripe => {
                return of(|array| {
                    let (level, stripe) = (array::level(array), array::stripe(array));
                    format!("a full stripe of {level}, {stripe}, so that no write reads parity")
                });
            }
            Source::Members => {
                return of(|array| {
                    format!(
                        "its drives report it; {} has no parity, so no write needs a full stripe",
                        array::level(array)
                    )
                });
            }
            Source::Default => {
                "assumed: the device reports none beyond 4 KiB, as most devices do whatever their unit is; if its data sheet \
                 names another, set iu"
            }
        };
        reason.to_owned()
    }
}
