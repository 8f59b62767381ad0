//! Background tasks of an open store.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use esker_device::{Device, Runtime, Task};
use tokio::sync::Notify;

use crate::base::error::Error;
use crate::base::health::Health;

/// Spawns background tasks and counts the running ones.
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

    /// Spawns a background task. Closing the store waits for its end.
    pub(crate) fn spawn(
        self: &Arc<Tasks>,
        name: &'static str,
        task: impl Future<Output = ()> + Send + 'static,
    ) {
        let task = self.accompany(name, task);
        self.runtime.spawn(name, task);
    }

    /// As [`spawn`](Self::spawn), for a task that mostly waits for a device and computes little: it runs on the I/O
    /// thread of that device, if it has one.
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

    /// Waits until no background task is running.
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

/// Guard of a running task. If the task panics, the store stops, because its work would no longer be done.
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
