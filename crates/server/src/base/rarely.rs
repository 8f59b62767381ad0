//! A future that is asked only when something has become of it.
//!
//! Who waits for a client's next command waits for a dozen other things besides, which hardly ever happen. To ask all of them with
//! every command costs as much as to parse it. So they get a waker of their own, which says that they are to be asked.
//!
//! Invariant: when `is_woken` is set, the task that was noted is woken after that. Who changes the task notes it before it looks at
//! `is_woken`.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

/// See the [module](self).
pub(crate) struct Rarely<T> {
    future: Pin<Box<dyn Future<Output = T> + Send>>,
    called: Arc<Called>,
    waker: Waker,
    /// The task that is noted in `called`.
    task: Waker,
}

struct Called {
    is_woken: AtomicBool,
    task: Mutex<Waker>,
}

impl Wake for Called {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.is_woken.store(true, Ordering::Release);
        let task = self.task.lock().unwrap_or_else(PoisonError::into_inner).clone();
        task.wake();
    }
}

impl<T> Rarely<T> {
    pub(crate) fn new(future: impl Future<Output = T> + Send + 'static) -> Rarely<T> {
        let called =
            Arc::new(Called { is_woken: AtomicBool::new(true), task: Mutex::new(Waker::noop().clone()) });
        let waker = Waker::from(called.clone());
        Rarely { future: Box::pin(future), called, waker, task: Waker::noop().clone() }
    }
}

impl<T> Future for Rarely<T> {
    type Output = T;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let this = &mut *self;
        if !this.task.will_wake(context.waker()) {
            this.task.clone_from(context.waker());
            this.called.task.lock().unwrap_or_else(PoisonError::into_inner).clone_from(context.waker());
        }
        if !this.called.is_woken.load(Ordering::Acquire) {
            return Poll::Pending;
        }
        // An exchange: what the last who woke it had done before is seen by who is asked now.
        this.called.is_woken.swap(false, Ordering::AcqRel);
        this.future.as_mut().poll(&mut Context::from_waker(&this.waker))
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, poll_fn};
    use std::sync::atomic::AtomicUsize;
    use std::time::Duration;

    use super::*;

    #[derive(Default)]
    struct Counted(AtomicUsize);

    impl Wake for Counted {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn it_is_asked_when_it_was_woken_and_wakes_the_task_that_asked_last() {
        let (asked, inner) = (Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new(None)));
        let mut rarely = {
            let (asked, inner) = (asked.clone(), inner.clone());
            Rarely::new(poll_fn(move |context| {
                *inner.lock().unwrap() = Some(context.waker().clone());
                if asked.fetch_add(1, Ordering::Relaxed) < 2 { Poll::Pending } else { Poll::Ready(7) }
            }))
        };
        let tasks = [Arc::new(Counted::default()), Arc::new(Counted::default())];
        let mut ask = |task: usize| {
            let waker = Waker::from(tasks[task].clone());
            Pin::new(&mut rarely).poll(&mut Context::from_waker(&waker))
        };
        let wake = || inner.lock().unwrap().as_ref().unwrap().wake_by_ref();
        assert!(ask(0).is_pending() && ask(0).is_pending() && ask(1).is_pending());
        assert_eq!(asked.load(Ordering::Relaxed), 1, "nothing had become of it");
        wake();
        let woken = || [0, 1].map(|task: usize| tasks[task].0.load(Ordering::Relaxed));
        assert_eq!(woken(), [0, 1]);
        assert!(ask(0).is_pending());
        assert_eq!(asked.load(Ordering::Relaxed), 2);
        wake();
        assert_eq!((woken(), ask(0)), ([1, 1], Poll::Ready(7)));
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn no_call_from_another_thread_is_lost() {
        for _ in 0..2000 {
            let (send, receive) = tokio::sync::oneshot::channel::<()>();
            let mut rarely = Rarely::new(receive);
            tokio::spawn(async { send.send(()) });
            let both = async {
                tokio::select! {
                    biased;
                    () = pending() => {}
                    _ = &mut rarely => {}
                }
            };
            tokio::time::timeout(Duration::from_secs(60), both).await.expect("it was called");
        }
    }
}
