//! Background tasks of one open store.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use esker_device::{Device, Runtime, Task};
use tokio::sync::Notify;

use crate::base::error::Error;
use crate::base::health::Health;

/// Spawns background tasks, and counts those that have not ended.
pub(crate) struct Tasks {
    runtime: Arc<dyn Runtime>,
    health: Arc<Health>,
    running: AtomicUsize,
    all_ended: Notify,
}

impl Tasks {
    pub(crate) fn new(runtime: Arc<dyn Runtime>, health: Arc<Health>) -> Arc<Tasks> {
        Arc::new(Tasks { runtime, health, running: AtomicUsize::new(0), all_ended: Notify::new() })
    }

    /// Runs background work that the closing of the store waits for.
    pub(crate) fn spawn(
        self: &Arc<Tasks>,
        name: &'static str,
        task: impl Future<Output = ()> + Send + 'static,
    ) {
        let task = self.accompany(name, task);
        self.runtime.spawn(name, task);
    }

    /// The same, for work that mostly waits for a device and is short between: on the I/O thread of that device, if it has
    /// one.
    pub(crate) fn spawn_at(
        self: &Arc<Tasks>,
        device: &dyn Device,
        name: &'static str,
        task: impl Future<Output = ()> + Send + 'static,
    ) {
        if let Some(task) = device.spawn_on_io_thread(name, self.accompany(name, task)) {
            self.runtime.spawn(name, task);
        }
    }

    /// Counts a task until it has ended.
    fn accompany(
        self: &Arc<Tasks>,
        name: &'static str,
        task: impl Future<Output = ()> + Send + 'static,
    ) -> Task {
        self.running.fetch_add(1, Ordering::AcqRel);
        let running = Running { tasks: self.clone(), name, finished: false };
        Box::pin(async move {
            task.await;
            running.finish();
        })
    }

    /// Waits until no background work is left.
    pub(crate) async fn ended(&self) {
        loop {
            let ended = self.all_ended.notified();
            if self.running.load(Ordering::Acquire) == 0 {
                return;
            }
            ended.await;
        }
    }
}

/// Background work that is under way. If it panics, the store stops: nobody would do that work any more.
struct Running {
    tasks: Arc<Tasks>,
    name: &'static str,
    finished: bool,
}

impl Running {
    fn finish(mut self) {
        self.finished = true;
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.finished {
            let reason = format!("its {} task ended early", self.name);
            self.tasks.health.latch(&Error::Closed { reason });
        }
        if self.tasks.running.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.tasks.all_ended.notify_waiters();
        }
    }
}
