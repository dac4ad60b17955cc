//! Look-ups: work of a batcher that returns one output for each item.

use super::{Asked, BatchWork, Batcher};

/// Work that returns one output for each item, all at the same time.
pub trait LookUp: Send + Sync + 'static {
    /// What is looked up.
    type Item: Send + 'static;
    /// What is found.
    type Output: Send + 'static;
    /// Why a look-up fails, and with it the whole batch.
    type Error: Clone + Send + 'static;

    /// Looks up all items. Returns one output for each, in the same order.
    fn look_up(
        &self,
        items: Vec<Self::Item>,
    ) -> impl Future<Output = Result<Vec<Self::Output>, Self::Error>> + Send;
}

/// Look-ups as the work of a batcher.
pub struct LookUps<L>(pub L);

impl<L: LookUp> BatchWork for LookUps<L> {
    type Item = L::Item;
    type Answer = Result<L::Output, L::Error>;

    async fn run(&self, batch: Vec<Asked<Self::Item, Self::Answer>>) {
        let (items, answers): (Vec<_>, Vec<_>) = batch.into_iter().map(Asked::split).unzip();
        match self.0.look_up(items).await {
            Ok(outputs) => {
                debug_assert_eq!(outputs.len(), answers.len(), "one output for each item");
                let pairs = answers.into_iter().zip(outputs);
                pairs.for_each(|(answer, output)| answer.give(Ok(output)));
            }
            Err(error) => answers
                .into_iter()
                .for_each(|answer| answer.give(Err(error.clone()))),
        }
    }
}

impl<L: LookUp> Batcher<LookUps<L>> {
    /// Looks up one item. `None` if the batcher did not answer, or the batch failed.
    pub fn look_up(&self, item: L::Item) -> impl Future<Output = Option<L::Output>> + use<L> {
        let asked = self.ask(item);
        async { asked.await.ok()?.ok() }
    }
}
