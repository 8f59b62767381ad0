//! The horizontal axes of charts.

use serde::Serialize;

use crate::report::size;

/// Property on a chart's horizontal axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ChartKind {
    /// Size of random writes.
    WriteSize,
    /// Over-provisioning of the drive.
    OverProvisioning,
}

impl ChartKind {
    /// Returns the label of the axis.
    pub fn name(self) -> &'static str {
        match self {
            ChartKind::WriteSize => "size of random writes",
            ChartKind::OverProvisioning => "over-provisioning",
        }
    }

    /// Formats a value on the axis.
    pub(super) fn shown(self, x: f64) -> String {
        match self {
            ChartKind::WriteSize => size(x as u64),
            ChartKind::OverProvisioning => format!("{x:.0} %"),
        }
    }

    pub(super) fn key_points(self) -> Vec<f64> {
        match self {
            ChartKind::WriteSize => [12, 13, 14, 15, 16, 17, 18].map(|bits| f64::from(1 << bits)).to_vec(),
            ChartKind::OverProvisioning => vec![7.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0],
        }
    }

    pub(super) fn caption(self) -> &'static str {
        match self {
            ChartKind::WriteSize => {
                "Device WAF of random writes in the steady state, over-provisioning of the D5-P5316"
            }
            ChartKind::OverProvisioning => "Device WAF of random writes in the steady state, IU of 64 KiB",
        }
    }
}
