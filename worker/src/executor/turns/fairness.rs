//! Fairness: runs are taken in turn for each workspace, within the limits of the worker, the
//! workspace and the account. Pure.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    time::SystemTime,
};

use letterbox_common::ids::{AccountId, RunId, WorkspaceId};
use letterbox_database::FromRow;
use uuid::Uuid;

/// How many runs are taken ahead of those that call an account, at most, for each of these.
const AHEAD: usize = 3;

/// Runs that wait for the same: a turn of their workspace, and of the account that they call next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, FromRow)]
pub struct Lane {
    #[row(name = workspace_id)]
    pub workspace: WorkspaceId,
    /// None where it is not known: such runs find out, and come back if there is no room.
    #[row(name = account_id)]
    pub account: Option<AccountId>,
}

/// A place in the order of lanes: the ids of a workspace and of an account, nil without one; the
/// last of all ids is behind all of a workspace.
pub type Position = (Uuid, Uuid);

impl Lane {
    /// Its place in the order of lanes.
    pub fn position(self) -> Position {
        let account = self.account.map_or(Uuid::nil(), Uuid::from);
        (self.workspace.into(), account)
    }
}

/// How much may be in flight at once: taken by a worker, and not yet let go of.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Runs of a workspace.
    pub workspace: usize,
    /// Requests to an account, and so runs that call it; more runs only of a worker that has all.
    pub account: usize,
}

/// A due run that could be taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromRow)]
pub struct Candidate {
    #[row(name = run_id)]
    pub run: RunId,
    #[row(flatten)]
    pub lane: Lane,
    pub due_at: SystemTime,
}

impl Candidate {
    /// The key of its run.
    pub fn key(&self) -> (WorkspaceId, RunId) {
        (self.lane.workspace, self.run)
    }
}

/// What is in flight, counted.
#[derive(Debug, Clone, Default)]
pub struct InFlight {
    total: usize,
    by_workspace: HashMap<WorkspaceId, usize>,
    by_account: HashMap<Lane, usize>,
    /// Lanes of which other workers have runs.
    of_others: HashSet<Lane>,
    /// How many requests of each lane were quickly answered since this worker's last look.
    answered: HashMap<Lane, usize>,
}

impl InFlight {
    /// Counts what this worker has, and what others have.
    pub fn count(
        own: impl Iterator<Item = Lane>,
        others: impl Iterator<Item = Lane>,
        answered: HashMap<Lane, usize>,
    ) -> Self {
        let mut in_flight = Self {
            answered,
            ..Self::default()
        };
        for lane in own {
            in_flight.add(lane);
        }
        for lane in others {
            in_flight.add(lane);
            in_flight.of_others.insert(lane);
        }
        in_flight
    }

    /// The number of all runs in flight.
    pub fn total(&self) -> usize {
        self.total
    }

    fn add(&mut self, lane: Lane) {
        self.total += 1;
        *self.by_workspace.entry(lane.workspace).or_default() += 1;
        *self.by_account.entry(lane).or_default() += 1;
    }

    /// How many more of a lane may be in flight, where there may be `total` of all.
    pub fn room(&self, lane: Lane, limits: Limits, total: usize) -> usize {
        let left = |limit: usize, used: Option<&usize>| limit.saturating_sub(*used.unwrap_or(&0));
        let room = left(total, Some(&self.total)).min(left(
            limits.workspace,
            self.by_workspace.get(&lane.workspace),
        ));
        match lane.account {
            Some(_) => {
                let most = limits.account + self.ahead(lane).min(limits.account * AHEAD);
                room.min(left(most, self.by_account.get(&lane)))
            }
            None => room,
        }
    }

    /// How many runs may be taken before their account may be called: as many as were quickly
    /// answered since the last look, so none of an account that is slow. Only by a worker that has
    /// all runs of the lane: no other takes one until it has fewer than may call, and it lets no
    /// more than those call.
    fn ahead(&self, lane: Lane) -> usize {
        match self.of_others.contains(&lane) {
            true => 0,
            false => *self.answered.get(&lane).unwrap_or(&0),
        }
    }
}

/// Takes candidates in turn: of each workspace the one that has been due for longest and that there
/// is room for, then of each the next one, until no place or nobody is left. `waiting` holds each
/// workspace once, first the one whose turn it is, with its candidates, the longest due first.
pub fn take_turns(
    waiting: Vec<VecDeque<Candidate>>,
    in_flight: &InFlight,
    limits: Limits,
    total: usize,
) -> Vec<Candidate> {
    let mut in_flight = in_flight.clone();
    let mut taken = Vec::new();
    let mut round = waiting;
    while !round.is_empty() && in_flight.total < total {
        round.retain_mut(|candidates| {
            let has_room = |one: &Candidate| in_flight.room(one.lane, limits, total) > 0;
            let next = candidates.iter().position(has_room);
            let Some(next) = next.and_then(|index| candidates.remove(index)) else {
                return false;
            };
            in_flight.add(next.lane);
            taken.push(next);
            true
        });
    }
    taken
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::{collection::vec, prelude::*};

    use super::*;

    /// Workspaces, and accounts, with these numbers.
    struct Names(Vec<WorkspaceId>, Vec<AccountId>);

    impl Names {
        fn new() -> Self {
            let mut workspaces: Vec<_> = (0..6).map(|_| WorkspaceId::generate()).collect();
            workspaces.sort_unstable();
            Self(workspaces, (0..4).map(|_| AccountId::generate()).collect())
        }

        fn candidates(&self, workspace: usize, accounts: &[usize]) -> VecDeque<Candidate> {
            let candidate = |(index, account): (usize, &usize)| Candidate {
                run: RunId::generate(),
                lane: Lane {
                    workspace: self.0[workspace],
                    account: account.checked_sub(1).map(|account| self.1[account]),
                },
                due_at: SystemTime::UNIX_EPOCH + Duration::from_secs(index as u64),
            };
            accounts.iter().enumerate().map(candidate).collect()
        }
    }

    const LIMITS: Limits = Limits {
        workspace: 4,
        account: 2,
    };

    /// What this worker has, and nobody else.
    fn in_flight(own: impl IntoIterator<Item = Lane>) -> InFlight {
        InFlight::count(own.into_iter(), std::iter::empty(), HashMap::new())
    }

    #[test]
    fn workspaces_take_turns() {
        let names = Names::new();
        let many = names.candidates(0, &[0; 9]);
        let few = names.candidates(1, &[0, 0]);
        let expected = [many[0], few[0], many[1], few[1], many[2]];
        let waiting = vec![many, few];
        let taken = take_turns(waiting, &InFlight::default(), LIMITS, 5);
        assert_eq!(taken, expected);
    }

    #[test]
    fn a_full_account_holds_up_its_own_runs_only() {
        let names = Names::new();
        let candidates = names.candidates(0, &[1, 1, 1, 2, 0]);
        let full = in_flight([candidates[0].lane; 2]);
        let expected = [candidates[3], candidates[4]];
        assert_eq!(take_turns(vec![candidates], &full, LIMITS, 100), expected);
    }

    proptest! {
        /// Workers look and bring back requests in any order, and each lets no more runs call the
        /// account than may: together they do so, too, however many they have taken ahead.
        #[test]
        fn all_workers_call_an_account_no_more_than_it_may_be(
            steps in vec((0_usize..3, any::<bool>()), 1..200),
        ) {
            let lane = Names::new().candidates(0, &[1])[0].lane;
            let limits = Limits { workspace: 100, account: 4 };
            let mut taken = [0_usize; 3];
            let mut answered = [0_usize; 3];
            let mut is_ahead = false;
            for (worker, looks) in steps {
                if looks {
                    let all: usize = taken.iter().sum();
                    let own = vec![lane; taken[worker]].into_iter();
                    let others = vec![lane; all - taken[worker]].into_iter();
                    let back = HashMap::from([(lane, std::mem::take(&mut answered[worker]))]);
                    taken[worker] += InFlight::count(own, others, back).room(lane, limits, 1_000);
                } else if taken[worker] > 0 {
                    taken[worker] -= 1;
                    answered[worker] += 1;
                }
                let calls: usize = taken.iter().map(|own| *own.min(&limits.account)).sum();
                prop_assert!(calls <= limits.account, "{taken:?}");
                prop_assert!(taken.iter().all(|own| *own <= limits.account * (1 + AHEAD)));
                is_ahead |= taken.iter().any(|own| *own > limits.account);
            }
            prop_assume!(is_ahead);
        }

        /// Whatever waits: no limit is exceeded, no place is left empty that somebody could have,
        /// each lane keeps its order, and nobody has two more turns than another who still waits.
        #[test]
        fn turns_are_fair(
            waiting in vec(vec(0_usize..5, 0..12), 1..6),
            before in vec((0_usize..6, 0_usize..5), 0..12),
            quick in vec((0_usize..6, 1_usize..5, 0_usize..9), 0..6),
            total in 0_usize..24,
        ) {
            let names = Names::new();
            let before = before.iter().map(|(workspace, account)| {
                names.candidates(*workspace, &[*account])[0].lane
            });
            let quick = quick.into_iter().map(|(workspace, account, answered)| {
                (names.candidates(workspace, &[account])[0].lane, answered)
            });
            let in_flight = InFlight::count(before, std::iter::empty(), quick.collect());
            let waiting: Vec<_> = waiting
                .iter()
                .enumerate()
                .map(|(workspace, accounts)| names.candidates(workspace, accounts))
                .collect();
            let taken = take_turns(waiting.clone(), &in_flight, LIMITS, total);
            let mut after = in_flight;
            for one in &taken {
                prop_assert!(after.room(one.lane, LIMITS, total) > 0);
                after.add(one.lane);
            }
            let turns = |workspace: usize| {
                taken.iter().filter(|one| one.lane.workspace == names.0[workspace]).count()
            };
            for (workspace, candidates) in waiting.iter().enumerate() {
                for (index, one) in candidates.iter().enumerate() {
                    if taken.contains(one) {
                        let overtaken = candidates.range(..index).any(|earlier| {
                            earlier.lane == one.lane && !taken.contains(earlier)
                        });
                        prop_assert!(!overtaken, "out of order");
                        continue;
                    }
                    prop_assert_eq!(after.room(one.lane, LIMITS, total), 0, "a place is empty");
                    // Who was left out only for want of places has had as many turns as others.
                    if after.room(one.lane, LIMITS, usize::MAX) > 0 {
                        for other in 0..waiting.len() {
                            prop_assert!(turns(other) <= turns(workspace) + 1);
                        }
                    }
                }
            }
        }
    }
}
