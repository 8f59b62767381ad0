//! Map from the IUs of the namespace to places in flash, and back.

/// Marks an unmapped IU, or a place without a valid IU.
const NONE: u32 = u32::MAX;

/// The map, in both directions.
#[derive(Debug)]
pub(super) struct Map {
    places: Vec<u32>,
    ius: Vec<u32>,
}

impl Map {
    pub(super) fn new(ius: u32, places: u32) -> Map {
        Map { places: vec![NONE; ius as usize], ius: vec![NONE; places as usize] }
    }

    /// Returns the place of an IU, if it is mapped.
    pub(super) fn place(&self, iu: u32) -> Option<u32> {
        Some(self.places[iu as usize]).filter(|place| *place != NONE)
    }

    /// Returns the valid IU in a place.
    pub(super) fn iu(&self, place: u32) -> Option<u32> {
        Some(self.ius[place as usize]).filter(|iu| *iu != NONE)
    }

    /// Maps an IU to a place. Returns its previous place.
    pub(super) fn set(&mut self, iu: u32, place: u32) -> Option<u32> {
        let old = std::mem::replace(&mut self.places[iu as usize], place);
        self.ius[place as usize] = iu;
        self.vacate(old)
    }

    /// Unmaps an IU. Returns its previous place.
    pub(super) fn unmap(&mut self, iu: u32) -> Option<u32> {
        let old = std::mem::replace(&mut self.places[iu as usize], NONE);
        self.vacate(old)
    }

    fn vacate(&mut self, place: u32) -> Option<u32> {
        if place == NONE {
            return None;
        }
        self.ius[place as usize] = NONE;
        Some(place)
    }

    #[cfg(test)]
    pub(super) fn mapped(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        let mapped = self.places.iter().enumerate().filter(|(_, place)| **place != NONE);
        mapped.map(|(iu, place)| (iu as u32, *place))
    }
}

/// Division by a constant, as a multiplication, because each program divides.
#[derive(Clone, Copy, Debug)]
pub(super) struct Divisor {
    by: u32,
    reciprocal: u64,
}

impl Divisor {
    pub(super) fn new(by: u32) -> Divisor {
        assert!(by > 1, "superblocks have more than one IU");
        Divisor { by, reciprocal: u64::MAX / u64::from(by) + 1 }
    }

    pub(super) fn get(self) -> u32 {
        self.by
    }

    /// Returns the quotient. Exact for all 32-bit numbers, because the reciprocal's error is below `1 / 2^32`.
    pub(super) fn divide(self, number: u32) -> u32 {
        ((u128::from(number) * u128::from(self.reciprocal)) >> 64) as u32
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::Divisor;

    proptest! {
        #[test]
        fn reciprocal_divides_exactly(number: u32, by in 2u32..) {
            prop_assert_eq!(Divisor::new(by).divide(number), number / by);
        }
    }
}
