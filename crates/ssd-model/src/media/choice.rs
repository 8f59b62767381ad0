//! A drive by name, with some properties overridden.

use super::Profile;
use crate::{Collector, Error, Shape};

/// Selection of the modelled drive.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Choice {
    /// Profile name.
    pub name: String,
    /// Indirection unit in bytes, if overridden.
    pub iu_bytes: Option<u64>,
    /// Over-provisioning as a share of the namespace, if overridden.
    pub over_provisioning: Option<f64>,
    /// Flash capacity in bytes, if overridden: an alternative to the over-provisioning.
    pub raw_bytes: Option<u64>,
    /// Namespace size in bytes, if overridden. Without a raw capacity, the flash stays that of the profile, or grows
    /// with a namespace larger than the profile's.
    pub namespace_bytes: Option<u64>,
    /// Superblock size in bytes, if overridden.
    pub superblock_bytes: Option<u64>,
    /// Victim selection of the collector.
    pub collector: Collector,
}

impl Choice {
    /// Returns the drive's profile with the overrides.
    pub fn profile(&self) -> Result<Profile, Error> {
        let mut profile = *Profile::named(&self.name)?;
        if let Some(bytes) = self.iu_bytes {
            let iu_bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
            if !iu_bytes.is_power_of_two() {
                return Err(Error::Iu { iu_bytes });
            }
            profile.iu_bytes = iu_bytes;
        }
        if let Some(share) = self.over_provisioning {
            if !(share > 0.0 && share <= 10.0) {
                let given = share.to_string();
                return Err(Error::Value {
                    what: "over-provisioning",
                    given,
                    allowed: "a share such as 0.07",
                });
            }
            profile.over_provisioning = share;
        }
        if self.raw_bytes.is_none() && self.namespace_bytes.is_none() {
            return Ok(profile);
        }
        let namespace = self.namespace_bytes.unwrap_or(profile.namespace_bytes);
        let larger = Profile { namespace_bytes: namespace.max(profile.namespace_bytes), ..profile };
        let raw = self.raw_bytes.unwrap_or(larger.raw_bytes());
        let (iu, below) = (u64::from(profile.iu_bytes), namespace / u64::from(profile.iu_bytes));
        if !namespace.is_multiple_of(iu) {
            let (what, iu_bytes) = ("a namespace", profile.iu_bytes);
            return Err(Error::NotWholeIus { what, bytes: namespace, iu_bytes, below: below * iu });
        }
        if namespace == 0 || raw <= namespace {
            let given = format!("{raw} bytes with a namespace of {namespace}");
            return Err(Error::Value { what: "the raw capacity", given, allowed: "more than the namespace" });
        }
        (profile.namespace_bytes, profile.over_provisioning) =
            (namespace, raw as f64 / namespace as f64 - 1.0);
        Ok(profile)
    }

    /// Returns the scaled-down drive.
    pub fn shape(&self) -> Result<Shape, Error> {
        Ok(self.changed(self.profile()?.shape(1.0)))
    }

    /// Returns the shape with the superblock size and the collector overridden.
    pub fn changed(&self, shape: Shape) -> Shape {
        let superblock_bytes = self.superblock_bytes.unwrap_or(shape.superblock_bytes);
        Shape { superblock_bytes, collector: self.collector, ..shape }
    }
}
