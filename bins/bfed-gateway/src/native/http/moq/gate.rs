//! Operations that wait are not tried again before the transport has woken them.
//!
//! moq-net has one task for each client, which tries everything that the client could do whenever anything has happened: with
//! each picture it reads every stream of requests, and looks for new streams, datagrams and the end of the connection. Each
//! attempt takes the lock of the connection, and most allocate. A gate remembers that the last attempt is still
//! registered with the transport, and answers for it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

/// One operation that is polled again and again, by one caller.
#[derive(Default)]
pub(super) struct Gate(Option<Waiting>);

struct Waiting {
    signal: Arc<Signal>,
    /// A copy of [`Signal::task`], to be compared without its lock.
    task: Waker,
}

/// What the transport wakes.
struct Signal {
    /// The operation may make progress, and has to be tried.
    is_open: AtomicBool,
    /// The task that tries it.
    task: Mutex<Waker>,
}

impl Waiting {
    fn new(task: &Waker) -> Self {
        Waiting {
            signal: Arc::new(Signal {
                is_open: AtomicBool::new(true),
                task: Mutex::new(task.clone()),
            }),
            task: task.clone(),
        }
    }

    fn register(&mut self, task: &Waker) {
        if !self.task.will_wake(task) {
            self.task.clone_from(task);
            self.signal.task().clone_from(task);
        }
    }
}

impl Signal {
    fn task(&self) -> MutexGuard<'_, Waker> {
        self.task.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Wake for Signal {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.is_open.store(true, Ordering::Release);
        // Without the lock: the task may run at once.
        let task = self.task().clone();
        task.wake();
    }
}

impl Gate {
    /// Tries the operation, unless it waits and nothing has woken it.
    pub(super) fn poll<T>(
        &mut self,
        context: &mut Context<'_>,
        attempt: impl FnOnce(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        let task = context.waker();
        let waiting = self.0.get_or_insert_with(|| Waiting::new(task));
        // Before the gate is looked at: what opens it later wakes this task.
        waiting.register(task);
        let signal = &waiting.signal;
        if !signal.is_open.swap(false, Ordering::Acquire) {
            return Poll::Pending;
        }
        let waker = Waker::from(Arc::clone(signal));
        let result = attempt(&mut Context::from_waker(&waker));
        if result.is_ready() {
            // The next operation has not been tried.
            signal.is_open.store(true, Ordering::Release);
        }
        result
    }

    /// Lets the next attempt through: something has changed here that the transport does not report.
    pub(super) fn open(&self) {
        if let Some(waiting) = &self.0 {
            waiting.signal.is_open.store(true, Ordering::Release);
        }
    }
}

/// A copy is another caller, whose operation has not been tried.
impl Clone for Gate {
    fn clone(&self) -> Self {
        Gate::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A task that counts how often it was woken.
    #[derive(Default)]
    struct Task(std::sync::atomic::AtomicUsize);

    impl Wake for Task {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn task() -> (Arc<Task>, Waker) {
        let task = Arc::new(Task::default());
        (Arc::clone(&task), Waker::from(task))
    }

    /// An operation that keeps its waker, and how often it was tried.
    #[derive(Default)]
    struct Operation {
        attempts: usize,
        waker: Option<Waker>,
        is_done: bool,
    }

    impl Operation {
        fn attempt(&mut self, context: &mut Context<'_>) -> Poll<()> {
            self.attempts += 1;
            self.waker = Some(context.waker().clone());
            if self.is_done {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        }
    }

    #[test]
    fn an_operation_that_waits_is_tried_again_once_it_was_woken() {
        let (count, waker) = task();
        let (mut gate, mut operation) = (Gate::default(), Operation::default());
        let mut context = Context::from_waker(&waker);
        for _ in 0..5 {
            assert!(
                gate.poll(&mut context, |c| operation.attempt(c))
                    .is_pending()
            );
        }
        assert_eq!(operation.attempts, 1);
        operation.is_done = true;
        operation.waker.take().unwrap().wake();
        assert_eq!(count.0.load(Ordering::Relaxed), 1);
        assert!(gate.poll(&mut context, |c| operation.attempt(c)).is_ready());
        // The next operation is tried at once.
        assert!(gate.poll(&mut context, |c| operation.attempt(c)).is_ready());
        assert_eq!(operation.attempts, 3);
    }

    #[test]
    fn the_task_that_polled_last_is_woken() {
        let ((first, before), (second, after)) = (task(), task());
        let (mut gate, mut operation) = (Gate::default(), Operation::default());
        for waker in [&before, &after] {
            let mut context = Context::from_waker(waker);
            assert!(
                gate.poll(&mut context, |c| operation.attempt(c))
                    .is_pending()
            );
        }
        operation.waker.take().unwrap().wake();
        assert_eq!(first.0.load(Ordering::Relaxed), 0);
        assert_eq!(second.0.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn what_wakes_during_an_attempt_is_not_lost() {
        let (count, waker) = task();
        let (mut gate, mut attempts) = (Gate::default(), 0);
        let mut context = Context::from_waker(&waker);
        for _ in 0..2 {
            let polled: Poll<()> = gate.poll(&mut context, |inner| {
                attempts += 1;
                inner.waker().wake_by_ref();
                Poll::Pending
            });
            assert!(polled.is_pending());
        }
        assert_eq!((attempts, count.0.load(Ordering::Relaxed)), (2, 2));
    }

    #[test]
    fn an_opened_gate_and_a_copy_try_at_once() {
        let (_, waker) = task();
        let (mut gate, mut operation) = (Gate::default(), Operation::default());
        let mut context = Context::from_waker(&waker);
        assert!(
            gate.poll(&mut context, |c| operation.attempt(c))
                .is_pending()
        );
        gate.open();
        assert!(
            gate.poll(&mut context, |c| operation.attempt(c))
                .is_pending()
        );
        let mut copy = gate.clone();
        assert!(
            copy.poll(&mut context, |c| operation.attempt(c))
                .is_pending()
        );
        assert_eq!(operation.attempts, 3);
    }
}
