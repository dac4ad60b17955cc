//! Fairness: runs are taken in turn for each workspace, within the limits of the worker, the
//! workspace and the account. Pure.

use std::{
    collections::{HashMap, VecDeque},
    time::SystemTime,
};

use letterbox_common::ids::{AccountId, RunId, WorkspaceId};
use letterbox_database::FromRow;

/// Runs that wait for the same: a turn of their workspace, and of the account that they call next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, FromRow)]
pub struct Lane {
    #[row(name = workspace_id)]
    pub workspace: WorkspaceId,
    /// None where it is not known: such runs find out, and come back if there is no room.
    #[row(name = account_id)]
    pub account: Option<AccountId>,
}

impl Lane {
    /// Stands for all lanes of a workspace.
    pub fn all_of(workspace: WorkspaceId) -> Self {
        Self {
            workspace,
            account: None,
        }
    }
}

/// How much may be in flight at once: taken by a worker, and not yet let go of.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Runs of a workspace.
    pub workspace: usize,
    /// Runs that call an account, and so requests to it.
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
}

impl InFlight {
    pub fn count(lanes: impl Iterator<Item = Lane>) -> Self {
        let mut in_flight = Self::default();
        for lane in lanes {
            in_flight.add(lane);
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
            Some(_) => room.min(left(limits.account, self.by_account.get(&lane))),
            None => room,
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
        let full = InFlight::count([candidates[0].lane; 2].into_iter());
        let expected = [candidates[3], candidates[4]];
        assert_eq!(take_turns(vec![candidates], &full, LIMITS, 100), expected);
    }

    proptest! {
        /// Whatever waits: no limit is exceeded, no place is left empty that somebody could have,
        /// each lane keeps its order, and nobody has two more turns than another who still waits.
        #[test]
        fn turns_are_fair(
            waiting in vec(vec(0_usize..5, 0..12), 1..6),
            before in vec((0_usize..6, 0_usize..5), 0..12),
            total in 0_usize..24,
        ) {
            let names = Names::new();
            let before = before.iter().map(|(workspace, account)| {
                names.candidates(*workspace, &[*account])[0].lane
            });
            let in_flight = InFlight::count(before);
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
