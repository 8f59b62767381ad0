//! Serializes classes of segments as JSON by their names.

use std::collections::BTreeMap;

use esker_log::SegmentClass;
use serde::{Serialize, Serializer};

pub(crate) fn name<S: Serializer>(class: &SegmentClass, to: S) -> Result<S::Ok, S::Error> {
    class.name().serialize(to)
}

pub(crate) fn name_if_any<S: Serializer>(class: &Option<SegmentClass>, to: S) -> Result<S::Ok, S::Error> {
    class.map(SegmentClass::name).serialize(to)
}

pub(crate) fn by_name<V: Serialize, S: Serializer>(
    classes: &BTreeMap<SegmentClass, V>,
    to: S,
) -> Result<S::Ok, S::Error> {
    to.collect_map(classes.iter().map(|(class, of)| (class.name(), of)))
}
