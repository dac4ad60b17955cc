//! Look-ups: work of a batcher that returns one output for each item.

use super::{Asked, BatchWork};

/// Work that returns one output for each item, all at the same time.
pub trait LookUp: Send + Sync + 'static {
    /// What is looked up.
    type Item: Send + 'static;
    /// What is found.
    type Output: Send + 'static;

    /// Looks up all items. Returns one output for each, in the same order; `None` if that fails:
    /// then no item is answered.
    fn look_up(
        &self,
        items: Vec<Self::Item>,
    ) -> impl Future<Output = Option<Vec<Self::Output>>> + Send;
}

/// Look-ups as the work of a batcher.
pub struct LookUps<L>(pub L);

impl<L: LookUp> BatchWork for LookUps<L> {
    type Item = L::Item;
    type Answer = L::Output;

    async fn run(&self, batch: Vec<Asked<Self::Item, Self::Answer>>) {
        let (items, answers): (Vec<_>, Vec<_>) = batch.into_iter().map(Asked::split).unzip();
        if let Some(outputs) = self.0.look_up(items).await {
            debug_assert_eq!(outputs.len(), answers.len(), "one output for each item");
            let pairs = answers.into_iter().zip(outputs);
            pairs.for_each(|(answer, output)| answer.give(output));
        }
    }
}
