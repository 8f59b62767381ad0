//! Options that choose the drive model.

use clap::{Args, ValueEnum};
use esker_ssd_model::{Choice, Collector};

#[derive(Args)]
pub(crate) struct Drive {
    /// The drive: d5-p5316 (15.36 TB of QLC, IU of 64 KiB), d5-p5336-61t (61.44 TB, 16 KiB), d5-p5336-122t (122.88 TB,
    /// 32 KiB), cm6 (3.84 TB of TLC, 4 KiB), low-latency (a cache drive).
    #[arg(long, value_name = "NAME", default_value = "d5-p5316")]
    drive: String,
    /// Another indirection unit: 4k to 64k.
    #[arg(long, value_name = "SIZE", value_parser = esker_command::parse)]
    iu: Option<u64>,
    /// Other over-provisioning, as a share of the namespace: 0.07 is 7 %.
    #[arg(long, value_name = "SHARE", conflicts_with_all = ["raw", "namespace"])]
    over_provisioning: Option<f64>,
    /// The capacity of the flash, such as 17.59TB (10^12 bytes) or 16t (2^40 bytes).
    #[arg(long, value_name = "SIZE", value_parser = esker_command::parse_capacity)]
    raw: Option<u64>,
    /// The capacity of the namespace, such as 61.44TB; what of the flash it leaves is over-provisioning. Without --raw, one that
    /// is larger than the drive's has the drive's share of over-provisioning.
    #[arg(long, value_name = "SIZE", value_parser = esker_command::parse_capacity)]
    namespace: Option<u64>,
    /// Another superblock: what is erased together.
    #[arg(long, value_name = "SIZE", value_parser = esker_command::parse)]
    superblock: Option<u64>,
    /// How the collector chooses its victim.
    #[arg(long, value_name = "HOW", default_value = "greedy")]
    collector: How,
}

#[derive(Clone, Copy, ValueEnum)]
enum How {
    /// The superblock with the fewest valid IUs.
    Greedy,
    /// The superblock with the most to gain for its cost and age.
    CostBenefit,
}

impl Drive {
    pub(crate) fn choice(&self) -> Choice {
        Choice {
            name: self.drive.clone(),
            iu_bytes: self.iu,
            over_provisioning: self.over_provisioning,
            raw_bytes: self.raw,
            namespace_bytes: self.namespace,
            superblock_bytes: self.superblock,
            collector: match self.collector {
                How::Greedy => Collector::Greedy,
                How::CostBenefit => Collector::CostBenefit,
            },
        }
    }
}
