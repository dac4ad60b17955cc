//! The tasks of a process, as a list in the order in which they end. Whatever is started here is
//! waited for when the process stops.

use std::pin::Pin;

use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{shutdown::Deadline, vital::vital};

/// The tasks of a process, and what else is done at its end, in order.
pub struct Tasks {
    steps: Vec<(&'static str, TaskStep)>,
    /// Tells the tasks of the current stage to stop.
    stop: CancellationToken,
}

type TaskStep = Pin<Box<dyn Future<Output = ()> + Send>>;

impl Tasks {
    /// No tasks. Those of the first stage end after `stop`.
    pub fn new(stop: &CancellationToken) -> Self {
        Self {
            steps: Vec::new(),
            stop: stop.clone(),
        }
    }

    /// Begins the next stage: its tasks are told to stop when everything before has ended.
    pub fn next_stage(&mut self) {
        let stop = CancellationToken::new();
        self.stop = stop.clone();
        self.then("stage", async move { stop.cancel() });
    }

    /// Starts a task of this stage, which gets the token that tells it to stop. If it panics, the
    /// process ends.
    pub fn spawn<T>(&mut self, name: &'static str, task: impl FnOnce(CancellationToken) -> T)
    where
        T: Future<Output = ()> + Send + 'static,
    {
        let running = tokio::spawn(vital(name, task(self.stop.clone())));
        self.then(name, async { drop(running.await) });
    }

    /// Waits at this place for tasks that end by themselves.
    pub fn wait(&mut self, name: &'static str, tasks: &TaskTracker) {
        let tasks = tasks.clone();
        self.then(name, async move {
            tasks.close();
            tasks.wait().await;
        });
    }

    /// Does something at this place.
    pub fn then(&mut self, name: &'static str, step: impl Future<Output = ()> + Send + 'static) {
        self.steps.push((name, Box::pin(step)));
    }

    /// Ends everything in order, until `deadline`. Returns `false` if something did not end in
    /// time.
    pub async fn end(self, deadline: Deadline) -> bool {
        let mut in_order = true;
        for (name, step) in self.steps {
            in_order &= deadline.step(name, step).await;
        }
        in_order
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{Arc, Mutex},
        time::Duration,
    };

    use super::*;

    #[tokio::test]
    async fn each_stage_ends_before_the_next_is_told_to_stop() {
        let stop = CancellationToken::new();
        let ended = Arc::new(Mutex::new(Vec::new()));
        let mut tasks = Tasks::new(&stop);
        let task = |name, milliseconds| {
            let ended = ended.clone();
            move |stop: CancellationToken| async move {
                stop.cancelled().await;
                tokio::time::sleep(Duration::from_millis(milliseconds)).await;
                ended.lock().unwrap().push(name);
            }
        };
        tasks.spawn("first", task("first", 50));
        tasks.next_stage();
        tasks.spawn("second", task("second", 20));
        tasks.spawn("third", task("third", 0));
        stop.cancel();
        assert!(tasks.end(Deadline::after(Duration::from_secs(60))).await);
        assert_eq!(*ended.lock().unwrap(), ["first", "third", "second"]);
    }

    /// What comes after a task that takes too long is told to stop all the same.
    #[tokio::test]
    async fn a_slow_task_is_told_and_keeps_none_from_stopping() {
        let stop = CancellationToken::new();
        let told = CancellationToken::new();
        let mut tasks = Tasks::new(&stop);
        tasks.spawn("slow", |_| std::future::pending());
        tasks.next_stage();
        let telling = told.clone();
        tasks.spawn("next", |stop| async move {
            stop.cancelled().await;
            telling.cancel();
        });
        assert!(!tasks.end(Deadline::after(Duration::from_millis(10))).await);
        told.cancelled().await;
    }
}
