//! End of a lane: by a close, which still writes all appended records, or by a failure, which every waiter gets.

use esker_log::OpenSegment;

use super::{Filling, Job, Lane};

use crate::base::completion::Completion;
use crate::base::error::{Error, Result};
use crate::base::health::Follower;
use crate::write::append_points::AppendPoint;

impl Lane {
    /// Refuses further appends. Appended records are still written.
    pub(crate) fn stop(&self) {
        let mut state = self.state.lock();
        state.stopping = true;
        self.close_frame(&mut state);
        let room = std::mem::replace(&mut state.room, Completion::new());
        drop(state);
        // No more room will be made.
        room.open(Err(Error::Closed { reason: "it was closed".into() }));
        self.wake_tasks();
    }

    fn wake_tasks(&self) {
        self.work.notify_one();
        self.spare_taken.notify_one();
        self.coalescing_work.notify_one();
        self.coalescing_spare_taken.notify_one();
    }

    /// Returns an open segment of a lane that has stopped, if it is not empty.
    pub(crate) fn take_open(&self) -> Option<(OpenSegment, usize)> {
        let mut state = self.state.lock();
        let mut open = [AppendPoint::MAIN, AppendPoint::LONG_LIVED]
            .into_iter()
            .filter_map(|point| state.points.take(point));
        open.find(|(segment, _)| !segment.entries().is_empty())
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.state.lock().stopping
    }

    /// Notes the result of the committer, and ends the flushes that were still queued with it.
    pub(crate) fn ended(&self, how: Result<()>) {
        let jobs = {
            let mut state = self.state.lock();
            state.ended.get_or_insert(how.clone());
            std::mem::take(&mut state.jobs)
        };
        for job in jobs {
            if let Job::Flush(completion) = job {
                completion.open(how.clone());
            }
        }
    }

    /// Ends all waits with the error that latched the store.
    fn fail(&self, error: &Error) {
        let (completions, groups) = {
            let mut state = self.state.lock();
            state.ended.get_or_insert_with(|| Err(error.clone()));
            let room = std::mem::replace(&mut state.room, Completion::new());
            let filling = std::mem::replace(&mut state.filling, Filling::new());
            let (mut completions, mut groups) = (vec![room, filling.completion], filling.groups);
            for job in std::mem::take(&mut state.jobs) {
                match job {
                    Job::Frame(frame) => {
                        completions.push(frame.completion);
                        groups.extend(frame.groups);
                    }
                    Job::Flush(completion) => completions.push(completion),
                    Job::Seal(..) | Job::End => {}
                }
            }
            (completions, groups)
        };
        // Reservations end here, outside the lock.
        drop(groups);
        completions.into_iter().for_each(|completion| completion.open(Err(error.clone())));
    }
}

impl Follower for Lane {
    fn failed(&self, error: &Error) {
        self.fail(error);
        self.coalescing_ended(Err(error.clone()));
        self.wake_tasks();
    }
}
