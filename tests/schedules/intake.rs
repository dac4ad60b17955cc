//! What the lanes of a gateway are built on, without sockets; the names are those of the gateway.

pub(crate) mod claims {
    //! Claims whose keys are numbers.

    use std::{collections::HashMap, hash::Hash, sync::Arc};

    use crate::{
        database::{Database, DatabaseError},
        open_batches::{BatchId, Settlements},
    };

    pub(crate) trait ClaimKey: Copy + Eq + Hash + Send + Sync + 'static {
        type Id: Copy + Send + Sync + From<u32>;

        fn number(self) -> u32;
    }

    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(crate) enum Outcome {
        First,
        Duplicate,
        InProgress,
        Unavailable,
    }

    pub(crate) type Answers<K> = HashMap<K, Result<<K as ClaimKey>::Id, Outcome>>;

    #[derive(Clone)]
    pub(crate) struct Claims {
        pub(crate) database: Database,
        pub(crate) settlements: Arc<Settlements>,
    }

    impl Claims {
        pub(crate) async fn claim<K: ClaimKey>(
            &self,
            wanted: &[(K, BatchId)],
        ) -> Result<Answers<K>, DatabaseError> {
            let numbers: Vec<_> = wanted
                .iter()
                .map(|(key, batch)| (key.number(), *batch))
                .collect();
            let told = self.database.claim(&numbers, &self.settlements).await?;
            let answer = |key: K| told[&key.number()].map(|()| key.number().into());
            Ok(wanted.iter().map(|(key, _)| (*key, answer(*key))).collect())
        }

        pub(crate) async fn find<K: ClaimKey>(
            &self,
            keys: &[K],
        ) -> Result<HashMap<K, Outcome>, DatabaseError> {
            let recorded = self.database.recorded().await?;
            let found = keys.iter().filter(|key| recorded.contains(&key.number()));
            Ok(found.map(|key| (*key, Outcome::Duplicate)).collect())
        }
    }
}

pub(crate) mod open_batches {
    //! Open batches, with the settlements of the gateway.

    use std::{
        collections::{BTreeMap, BTreeSet},
        fmt,
    };

    use letterbox_broker::BatchBody;
    use letterbox_common::ids::WorkspaceId;
    use shuttle::rand::{Rng, thread_rng};

    use crate::{
        broker::dawdle,
        database::{Database, DatabaseError},
    };

    pub(crate) use crate::settlements::Settlements;

    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub(crate) struct BatchId(u64);

    impl BatchId {
        pub(crate) fn generate() -> Self {
            Self(thread_rng().r#gen())
        }
    }

    impl fmt::Display for BatchId {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            self.0.fmt(f)
        }
    }

    #[derive(Clone)]
    pub(crate) struct Spillable {
        pub(crate) batch: BatchId,
        pub(crate) routing_key: String,
        pub(crate) body: BatchBody,
        pub(crate) shares: BTreeMap<WorkspaceId, usize>,
    }

    pub(crate) struct Outlet(pub(crate) Database);

    impl Outlet {
        pub(crate) fn may_take(&self, _: &str) -> bool {
            thread_rng().gen_ratio(7, 8)
        }

        /// Publishes a message; whatever it fails of, it may have arrived.
        pub(crate) async fn publish(&self, message: &Spillable) -> Result<(), ()> {
            dawdle(6).await;
            assert!(!message.routing_key.is_empty() && !message.shares.is_empty());
            let claimed = self.0.tables().claimed[&message.batch];
            assert_eq!(
                message.body.entries as usize, claimed,
                "claimed and not published"
            );
            let is_confirmed = thread_rng().gen_ratio(3, 4);
            match is_confirmed {
                true => {
                    self.0.tables().confirmed.insert(message.batch);
                    dawdle(2).await;
                    Ok(())
                }
                false => Err(()),
            }
        }
    }

    pub(crate) struct Spill(pub(crate) Database);

    impl Spill {
        pub(crate) fn has_room_for(&self, _: WorkspaceId) -> bool {
            thread_rng().gen_bool(0.5)
        }

        pub(crate) async fn keep(
            &self,
            messages: &[Spillable],
        ) -> Result<BTreeSet<BatchId>, DatabaseError> {
            self.0
                .spill(messages.iter().map(|one| one.batch).collect())
                .await
        }
    }

    pub(crate) mod store {
        //! The statements of the settlements.

        use std::collections::BTreeSet;

        use super::{BatchId, Database, DatabaseError};

        pub(crate) async fn close(
            database: &Database,
            batches: &[BatchId],
        ) -> Result<(), DatabaseError> {
            database.close(batches).await
        }

        pub(crate) async fn end_leases(
            database: &Database,
            batches: &BTreeSet<BatchId>,
        ) -> Result<(), DatabaseError> {
            database.end_leases(batches).await
        }
    }
}

pub(crate) mod work_queues {
    //! Two queues of each family.

    pub(crate) struct WorkQueues;

    impl WorkQueues {
        pub(crate) fn count(&self) -> u16 {
            2
        }
    }
}
