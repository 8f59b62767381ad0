//! Cuts the power at every operation: any part of the volatile data is lost, torn at 512 bytes.

use std::sync::Arc;

use esker_device::{MemoryDevice, Operation, OperationKind, Runtime};
use esker_simulated::Random;
use futures_util::future::{Either, select};
use parking_lot::Mutex;

use super::Told;
use super::script::{self, Life};

use crate::support::World;
use crate::support::history::Histories;

/// The devices after a power failure, and their expected content.
struct Image {
    fast: Option<MemoryDevice>,
    capacity: Option<MemoryDevice>,
    histories: Arc<Histories>,
    /// Number of the operation at which the power failed, and number of this image among those of that
    /// moment.
    name: (u64, u64),
}

/// Runs a life, and makes `of_each` images whenever an operation with an effect is submitted.
fn images(life: &Life, world: &World, of_each: u64) -> Vec<Image> {
    let images = Arc::new(Mutex::new((0u64, Vec::new())));
    let devices = (world.fast.clone(), world.capacity.clone());
    for device in [&world.fast, &world.capacity].into_iter().flatten() {
        let (images, life, (fast, capacity)) = (images.clone(), life.clone(), devices.clone());
        device.set_observer(Box::new(move |operation: &Operation| {
            if operation.kind == OperationKind::Read {
                return;
            }
            let mut images = images.lock();
            images.0 += 1;
            let (number, histories) = (images.0, Arc::new(life.histories()));
            for cut in 0..of_each {
                let mut random = Random::new(number << 20 | cut);
                let mut after =
                    |device: &Option<MemoryDevice>| Some(device.as_ref()?.crash(&mut || random.bits()));
                let (fast, capacity) = (after(&fast), after(&capacity));
                images.1.push(Image { fast, capacity, histories: histories.clone(), name: (number, cut) });
            }
        }));
    }
    life.live(world).complete();
    world.runtime.crash();
    std::mem::take(&mut images.lock().1)
}

/// Cuts the power again while the image is opened.
fn cut_again(world: &mut World, random: &mut Random) {
    let pause = world.runtime.sleep(std::time::Duration::from_micros(random.below(4000)));
    let opened = match world.runtime.run(select(Box::pin(esker::Store::open(world.options())), pause)) {
        Either::Left((opened, _)) => Some(opened.expect("it opens")),
        Either::Right(_) => None,
    };
    world.power_cut();
    drop(opened);
}

#[test]
fn power_cut_image_holds_all_acknowledged_writes() {
    let of_each = std::env::var("ESKER_IMAGES").ok().map_or(8, |text| text.parse().expect("a number"));
    let mut checked = 0u64;
    for life in script::lives(2) {
        let mut world = life.world();
        for Image { fast, capacity, histories, name } in images(&life, &world, of_each) {
            let replay = format!("{life:?}, image {name:?}");
            let _told = Told(&replay);
            (world.fast, world.capacity) = (fast, capacity);
            let mut random = Random::new(name.0 ^ name.1 << 32);
            for _ in 0..3 {
                if random.one_in(8) {
                    cut_again(&mut world, &mut random);
                }
            }
            life.check_against(&world, &histories);
            world.runtime.crash();
            checked += 1;
        }
        world.end();
    }
    println!("{checked} images");
    assert!(checked >= 10_000, "only {checked} images");
}
