//! Policy for the failure of a device.

/// Policy for the failure of one of several devices of a tier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum OnDeviceLoss {
    /// The store takes no more writes. Reads continue.
    #[default]
    Stop,
    /// The store leaves the device out: writes go to the other devices, and reads of keys on the failed one are errors
    /// that name it.
    Serve,
}
