//! The switch: the type of a bug, made from the list, and the choice of the process.

use crate::Bug;

macro_rules! bugs {
    ($($(#[doc = $about:literal])+ $bug:ident,)*) => {
        /// A bug that can be planted, named after the hazard.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Bug { $($(#[doc = $about])+ $bug,)* }

        impl Bug {
            /// Every bug.
            pub const ALL: &[Bug] = &[$(Bug::$bug,)*];

            /// Returns the name, as in the variable.
            pub const fn name(self) -> &'static str {
                match self { $(Bug::$bug => stringify!($bug),)* }
            }

            /// Returns a description of the bug.
            pub const fn about(self) -> &'static str {
                match self { $(Bug::$bug => concat!($($about,)+).trim_ascii(),)* }
            }
        }
    };
}

/// True if this process has the bug.
#[cfg(not(feature = "planted"))]
#[inline(always)]
pub const fn planted(_bug: Bug) -> bool {
    false
}

/// Returns true if this process has the bug.
///
/// # Panics
/// If `ESKER_PLANTED` names no bug.
#[cfg(feature = "planted")]
pub fn planted(bug: Bug) -> bool {
    static CHOSEN: std::sync::LazyLock<Option<Bug>> = std::sync::LazyLock::new(|| {
        let name = std::env::var("ESKER_PLANTED").ok().filter(|name| !name.is_empty())?;
        let found = Bug::ALL.iter().find(|bug| bug.name() == name);
        let bug =
            *found.unwrap_or_else(|| panic!("ESKER_PLANTED names no bug: {name}; see crates/seeded-bugs"));
        eprintln!("PLANTED: {}", bug.about());
        Some(bug)
    });
    *CHOSEN == Some(bug)
}
