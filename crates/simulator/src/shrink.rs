//! Reduces a failing plan to a minimal one.

use crate::plan::Plan;
use crate::run::{Failure, run};

/// World seeds tried per candidate, because removing a part changes the order of tasks.
const SEEDS: u64 = 3;

/// Removes from a failing plan all parts without which it still fails: lives, clients, runs of operations, openings,
/// faults. Returns the reduced plan and its failure, after at most `runs` runs; `None` if the plan does not fail.
pub fn shrink(plan: &Plan, runs: u64) -> Option<(Plan, Failure)> {
    let failure = run(plan).err()?;
    let mut shrinking = Shrinking { plan: plan.clone(), failure, runs_left: runs };
    while shrinking.round() {}
    Some((shrinking.plan, shrinking.failure))
}

struct Shrinking {
    plan: Plan,
    failure: Failure,
    runs_left: u64,
}

impl Shrinking {
    /// Tries to remove each part once. Returns true if anything was removed.
    fn round(&mut self) -> bool {
        let mut is_smaller = false;
        is_smaller |= self.lives();
        for life in 0..self.plan.lives.len() {
            is_smaller |= self.details(life);
            is_smaller |= self.operations(life);
        }
        is_smaller
    }

    /// Adopts a candidate if it fails too.
    fn try_this(&mut self, candidate: &Plan) -> bool {
        for seed in 0..SEEDS {
            if self.runs_left == 0 {
                return false;
            }
            self.runs_left -= 1;
            let candidate = Plan { seed: candidate.seed.wrapping_add(seed), ..candidate.clone() };
            if let Err(failure) = run(&candidate) {
                (self.plan, self.failure) = (candidate, failure);
                return true;
            }
        }
        false
    }

    fn try_change(&mut self, change: impl FnOnce(&mut Plan)) -> bool {
        let mut candidate = self.plan.clone();
        change(&mut candidate);
        self.try_this(&candidate)
    }

    fn lives(&mut self) -> bool {
        let mut is_smaller = false;
        for life in (0..self.plan.lives.len()).rev() {
            is_smaller |= self.plan.lives.len() > 1 && self.try_change(|plan| drop(plan.lives.remove(life)));
        }
        is_smaller
    }

    /// Removes parts of a life other than clients' operations.
    fn details(&mut self, life: usize) -> bool {
        let mut is_smaller = false;
        for at in (0..self.plan.lives[life].openings.len()).rev() {
            is_smaller |= self.try_change(|plan| {
                plan.lives[life].openings.remove(at);
            });
        }
        for at in (0..self.plan.lives[life].faults.len()).rev() {
            is_smaller |= self.try_change(|plan| {
                plan.lives[life].faults.remove(at);
            });
        }
        for at in (0..self.plan.lives[life].rot.len()).rev() {
            is_smaller |= self.try_change(|plan| {
                plan.lives[life].rot.remove(at);
            });
        }
        if self.plan.lives[life].again.is_some() {
            is_smaller |= self.try_change(|plan| plan.lives[life].again = None);
        }
        if self.plan.lives[life].idle_ms != 0 {
            is_smaller |= self.try_change(|plan| plan.lives[life].idle_ms = 0);
        }
        if self.plan.lives[life].clock_jump_ms != 0 {
            is_smaller |= self.try_change(|plan| plan.lives[life].clock_jump_ms = 0);
        }
        is_smaller
    }

    /// Removes clients' operations, in ever smaller runs. A client without operations stays, because it owns its slots.
    fn operations(&mut self, life: usize) -> bool {
        let mut is_smaller = false;
        for client in 0..self.plan.lives[life].clients.len() {
            let mut run = self.plan.lives[life].clients[client].len();
            while run > 0 {
                let mut at = 0;
                while at < self.plan.lives[life].clients[client].len() {
                    let end = self.plan.lives[life].clients[client].len().min(at + run);
                    let smaller =
                        self.try_change(|plan| drop(plan.lives[life].clients[client].drain(at..end)));
                    is_smaller |= smaller;
                    at += if smaller { 0 } else { run };
                }
                run /= 2;
            }
        }
        is_smaller
    }
}
