//! Fuzz target: values that a client claims to be HyperLogLogs.

use super::estimate::{Histogram, estimate};
use super::hash::place_of;
use super::sketch::{Maxima, Sketch, cached_count, each_run};

/// Checks that adding elements to a valid value keeps it valid, and yields the maximum of both registers. The first
/// byte is the number of elements, the rest the value.
pub fn value(bytes: &[u8]) {
    let Some((elements, value)) = bytes.split_first() else { return };
    let mut histogram = Histogram::new();
    let sound = each_run(value, |value, registers| histogram.add(value, registers.len())).is_ok();
    estimate(&histogram);
    let mut maxima = Maxima::new();
    assert_eq!(maxima.join(value).is_ok(), sound, "a value is valid either for counting or for merging only");
    let Ok(mut sketch) = Sketch::of(value) else {
        assert!(!sound, "a valid value is refused");
        return;
    };
    assert!(cached_count(value).is_ok());
    for element in 0..*elements {
        let (register, value) = place_of(&[element]);
        let raised = sketch.raise(register, value);
        assert!(raised.is_ok() || !sound, "an element cannot be added to a valid value");
    }
    let made = sketch.into_bytes();
    if sound {
        let mut both = Maxima::new();
        both.join(&made).expect("a valid value stays valid");
        let mut added: Vec<_> = maxima.iter().map(|(_, value)| value).collect();
        for element in 0..*elements {
            let (register, value) = place_of(&[element]);
            added[register] = value.max(added[register]);
        }
        assert!(both.iter().all(|(register, value)| added[register] == value), "registers are lost");
    }
}
