//! The execution of runs as a finite model, checked over every schedule.
//!
//! The protocol itself is described in `worker/src/executor/README.md`. A run has one action that
//! sends a request, or two, the first of which is a call of an agent. Two workers take the run in
//! turns. Each turn has a token, which fences: what becomes of the run is written only for the turn
//! that lasts. Attempts are numbered, too: what came of one counts if it is the latest and has no
//! answer yet, whoever has the run by then. An attempt begins in one statement, which asks again
//! for all that it was decided by. The account does what it is asked, every time, but what it has
//! refused for good under a key it has not done under that key, and will not.
//!
//! Every step is a transaction that is flushed, except for a take, which the database may forget
//! until something that is flushed comes after it. A run that is taken by the transaction that
//! records it, and whose first attempt begins with it, are a take and a beginning with nothing
//! between them; if that commit is unseen, nothing is sent, and the attempt is withdrawn. Between
//! any two steps a worker may die, be paused, or be cut off from the database: its lease ends,
//! another one goes on, and the first one may come back and send or write what it was about to. A
//! commit may be unseen, and is then repeated; an answer may be lost. People cancel, hold, change
//! the policy, answer the question that they looked at earlier, and retry. Left out are what a
//! policy denies, a member's right to approve and an account's connection: they are asked where the
//! policy is.
//!
//! In the last scope a second workspace has such a run, too, and one worker has places for both.
//! Its statements are for both, although they are one step after the other here. Somebody may lock
//! a row of the first workspace, and never let go of it. A statement that needs the row fails for
//! all that it is about, so the other run gets one of its own; a take skips what is locked.
//!
//! Proven in the scopes below are the promises named at the end of the model. The last one is
//! liveness. Each fault and each order uses up a budget, and everything else a stage of an attempt
//! or of a question, so the model has no cycle. So it is enough that something but faults and
//! orders is left until each run is over or locked. Each [`Flaw`] breaks one of the promises, so
//! none of them holds for want of schedules.

use std::collections::BTreeSet;
use std::num::NonZero;
use std::thread::available_parallelism;

use Action::{
    Answer, Begin, Cancel, ChangePolicy, Crash, Due, Forget, Hold, LeaseOver, Load, Lock, Look,
    Release, Retry, Send, Take, Unlock, Write,
};
use ActionState::{
    Cancelled, Denied, Failed, Fresh, Retrying, Running, Succeeded, Told, WaitingApproval,
};
use Outcome::{Busy, Done, Lost, Refused, Unseen, Unsent};
use Plan::{Ask, Deny, End, LetGo, Request};
use QuestionState::{Approved, Declined, Expired, Overdue, Pending, Unasked, Withdrawn};
use RunState::{Abandoned, Over, Ready, Scheduled};
use Stage::{Answered, Begun, Idle, Planned};
use stateright::{Checker, Expectation, HasDiscoveries, Model, Property};

use crate::{Row, stands_for};

/// Turns in a row that may record nothing.
const MAX_IDLE: u8 = 2;
/// Attempts before an action is given up, counted on through its retries by people.
const MAX_ATTEMPTS: u8 = 2;

#[derive(Clone, Copy, Debug)]
struct Scope {
    actions: usize,
    /// Whether the first version of the policy asks a person; each is the opposite of the last one.
    asks: bool,
    /// The budgets. Larger ones only take longer.
    faults: u8,
    orders: u8,
    /// Whether there is a second run, and one worker with two places instead of two workers.
    has_neighbour: bool,
}

const ALLOWED: Scope = scope(1, false, 2, 1);
const ASKED: Scope = scope(1, true, 1, 2);
/// A call of an agent comes first. When it fails, the agent's model is told.
const CALL: Scope = scope(2, false, 1, 1);
const TWO_RUNS: Scope = Scope {
    has_neighbour: true,
    ..scope(1, false, 2, 0)
};

const fn scope(actions: usize, asks: bool, faults: u8, orders: u8) -> Scope {
    Scope {
        actions,
        asks,
        faults,
        orders,
        has_neighbour: false,
    }
}

/// Variants of the protocol that are broken on purpose, each with the promise that it breaks in a
/// scope.
macro_rules! flaws {
    ($($(#[$doc:meta])* $name:ident breaks $promise:ident in $scope:ident;)+) => {
        #[derive(Clone, Copy, Debug, PartialEq)]
        enum Flaw {
            None,
            $($(#[$doc])* $name,)+
        }

        const FLAWS: &[(Flaw, &str, Scope)] = &[$((Flaw::$name, $promise, $scope),)+];
    };
}

flaws! {
    /// A known answer is thrown away once another worker has the run.
    AnswerNeedsTurn breaks KEPT in ALLOWED;
    /// The end of an attempt is subtracted again after a commit that was not seen.
    AnswerCountsTwice breaks KEYS in ALLOWED;
    /// A worker that was paused between the beginning and the request sends it when it wakes.
    SendsLate breaks KEYS in ALLOWED;
    /// A question or a denial overwrites an answer that was recorded meanwhile.
    ChangeIgnoresAnswer breaks KEPT in ALLOWED;
    /// A final failure that is known late leaves the action waiting for a person.
    FailureLeavesQuestion breaks KEPT in ALLOWED;
    BeginWithoutTurn breaks FOUNDED in ALLOWED;
    BeginIgnoresAnswer breaks KEPT in ALLOWED;
    BeginIgnoresPolicy breaks FOUNDED in ALLOWED;
    BeginIgnoresCancel breaks FOUNDED in ALLOWED;
    BeginIgnoresHold breaks FOUNDED in ALLOWED;
    BeginIgnoresDenial breaks FOUNDED in ASKED;
    /// The approval of any action of the run is taken for that of this one.
    ApprovalOfOther breaks FOUNDED in CALL;
    BeginLeavesQuestion breaks OPEN in ASKED;
    /// A question whose time has passed stays open, if the agent whose call was denied goes on.
    DenialLeavesQuestion breaks OPEN in CALL;
    SendBeforeCommit breaks COUNTED in ALLOWED;
    /// Who does not know whether its attempt has begun says that nothing was sent in that of
    /// another turn.
    WithdrawsWithoutTurn breaks COUNTED in ALLOWED;
    /// An agent's model is told that a call failed which may have been done.
    TellsUnknown breaks TOLD in CALL;
    NewKeyAlways breaks KEYS in ALLOWED;
    RetryKeepsApproval breaks SHOWN in ASKED;
    /// A turn that the database forgot is given to somebody else.
    ForgottenTurnIsGivenAgain breaks SINGLE in ALLOWED;
    QuestionKeepsId breaks SHOWN in ASKED;
    EndLeavesQuestion breaks OPEN in ASKED;
    /// The answer of a person does not make the run ready.
    ApprovalForgetsRun breaks UNSEEN in ASKED;
    /// Nor does the release of a run whose question was answered while a worker had it.
    ReleaseForgetsApproval breaks UNSEEN in ASKED;
    LateAnswerForgetsRun breaks UNSEEN in ALLOWED;
    /// A locked row fails the statement for both runs.
    BatchFailsWhole breaks STUCK in TWO_RUNS;
    /// A locked row fails the take for both runs.
    TakeFailsWhole breaks STUCK in TWO_RUNS;
    /// A run whose lease is over gets another place of the worker that still has it in hand.
    TakesWhatItHas breaks STUCK in TWO_RUNS;
}

/// Each run has a workspace of its own.
type RunId = usize;
type WorkerId = usize;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum ActionState {
    /// It has no row yet.
    #[default]
    Fresh,
    Running,
    Retrying,
    WaitingApproval,
    Succeeded,
    Failed,
    /// It failed or was denied, and its agent was told so.
    Told,
    Denied,
    Cancelled,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum QuestionState {
    #[default]
    Unasked,
    Pending,
    /// Pending, but its time has passed.
    Overdue,
    Approved,
    Declined,
    Expired,
    Withdrawn,
}

/// A row of `approvals`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Question {
    id: u8,
    state: QuestionState,
    /// The request that was shown to whoever answered.
    shown: u8,
}

/// A row of `run_actions`, and what no row says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct ActionRow {
    state: ActionState,
    begun: u8,
    answered: u8,
    unanswered: u8,
    key: u8,
    /// What would be sent: another rendering is another one, and so is what was sent once a retry
    /// gives it a new key.
    request: u8,
    question: Question,
    /// The keys under which it may have been done, as bits, and how often it was.
    keys: u8,
    done: u8,
    /// A worker died, lost its lease or got no answer while the request was open.
    is_unsure: bool,
    /// The latest attempt whose end has reached the database while it was the latest; and how the
    /// action has ended by that.
    reached: u8,
    kept: ActionState,
}

impl ActionRow {
    fn is_asked(&self) -> bool {
        matches!(self.question.state, Pending | Overdue)
    }

    /// By somebody who was shown this very request.
    fn is_approved(&self) -> bool {
        self.question.state == Approved && self.question.shown == self.request
    }

    fn close(&mut self, state: QuestionState) {
        if self.is_asked() {
            self.question.state = state;
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum RunState {
    Scheduled,
    #[default]
    Ready,
    Taken,
    /// Taken, but the lease is over.
    Abandoned,
    Over(ActionState),
}

/// The row of a run in `active_runs`, which exists until the run is over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Run {
    state: RunState,
    /// The token of the last turn.
    turn: u8,
    idle: u8,
    is_cancelled: bool,
}

/// What a turn is going to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Plan {
    /// Any worker may take the run at once.
    #[default]
    LetGo,
    Ask,
    Deny,
    /// The run is over: succeeded or failed.
    End(bool),
    Request,
}

/// What the account says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Outcome {
    Done,
    /// Not done, and another attempt would end the same way.
    Refused,
    /// Not done, for now.
    Busy,
    /// Nothing was sent: the attempt is withdrawn.
    Unsent,
    /// The same, but it may not have begun.
    Unseen,
    /// Nothing: it may have been done, or may still be.
    Lost,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Stage {
    #[default]
    Idle,
    Taken,
    Planned(Plan),
    /// Sees that its attempt has begun.
    Begun,
    Answered(Outcome),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Worker {
    stage: Stage,
    run: RunId,
    turn: u8,
    action: usize,
    /// What it has loaded of its action.
    begun: u8,
    answered: u8,
    unanswered: u8,
    key: u8,
    was_asked: bool,
    version: u8,
}

impl Worker {
    fn taken(run: RunId, turn: u8) -> Self {
        let stage = Stage::Taken;
        Self {
            stage,
            run,
            turn,
            ..Self::default()
        }
    }

    /// The statement that it waits for.
    fn statement(&self) -> Option<&'static str> {
        match self.stage {
            Planned(Request) => Some("begin_attempts"),
            Planned(_) | Answered(_) => Some("write_steps"),
            _ => None,
        }
    }

    /// It may send, or has an answer that is not recorded.
    fn has_open(&self) -> bool {
        matches!(self.stage, Begun | Answered(Done | Refused | Busy | Lost))
    }
}

/// A run, and what its workspace has said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Workspace {
    run: Run,
    /// As the disk has it, if a take is not flushed.
    flushed: Option<Run>,
    actions: [ActionRow; 2],
    /// Of the policy.
    version: u8,
    is_held: bool,
    /// The question, by action and id, that somebody looks at, and the request that it shows.
    shown: Option<(usize, u8, u8)>,
    /// An attempt began although something that it was decided by did not hold.
    is_unfounded: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct State {
    workspaces: [Workspace; 2],
    /// Of the first workspace: whatever is written of its run needs it.
    row: Row,
    /// Tokens that have been drawn.
    tokens: u8,
    /// The workers, or the places of one, which are alike, so they are sorted.
    workers: [Worker; 2],
    faults: u8,
    orders: u8,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Action {
    Take(WorkerId, RunId),
    Load(WorkerId),
    /// Begins an attempt; unless the flag is set, the worker sees an error, and begins it again.
    Begin(WorkerId, bool),
    Send(WorkerId, Outcome),
    /// Writes the step of a turn; unless the flag is set, the worker writes it again.
    Write(WorkerId, bool),
    /// Fault: the worker dies and comes back without memory.
    Crash(WorkerId),
    /// Fault: the database comes back without what was not flushed.
    Forget,
    /// Fault: somebody locks the row, and may never let go of it.
    Lock,
    /// Counts as a fault, because nobody may rely on it.
    Unlock,
    /// Fault, if the worker is alive: the lease ends.
    LeaseOver(RunId),
    /// The time of a scheduled run has come; the flag tells whether that of its question has, too.
    /// A question that waits longer, because its workspace was held, is a fault.
    Due(RunId, bool),
    // What people order is about the first run.
    Cancel,
    Hold,
    Release,
    ChangePolicy,
    Look(usize),
    /// Approves or denies what was looked at.
    Answer(bool),
    /// Retries the run; the flag tells whether its request is rendered for another account.
    Retry(bool),
}

stands_for! {
    Take(..) => "statement.take_runs";
    Load(_) => "statement.load_runs" "statement.action_records";
    Begin(..) =>
        "statement.begin_attempts" "statement.withdraw_questions" "statement.record_changes";
    Send(..) => "request";
    Write(..) =>
        "statement.write_steps" "statement.hold_runs" "statement.record_answers"
        "statement.record_changes" "statement.close_questions" "statement.ask_approvals"
        "statement.keep_turns" "statement.release_runs" "statement.wake_answered"
        "statement.end_runs";
    Due(..) => "statement.let_wait" "statement.let_due_wait";
    Cancel => "statement.cancel_runs";
    Hold => "statement.hold";
    ChangePolicy => "statement.set_policy";
    Answer(_) => "statement.answer_approval";
    Retry(_) => "statement.retry_runs";
    Release => "statement.release";
    // What time does, a fault, or a look.
    Crash(_) | Forget | Lock | Unlock | LeaseOver(_) | Look(_) =>;
}

impl Workspace {
    fn is_of_turn(&self, turn: u8) -> bool {
        let is_taken = matches!(self.run.state, RunState::Taken | Abandoned);
        is_taken && self.run.turn == turn
    }

    fn is_over(&self) -> bool {
        matches!(self.run.state, Over(_))
    }

    fn is_due(&self) -> bool {
        matches!(self.run.state, Ready | Abandoned) && !self.is_held
    }

    /// What somebody sees who looks at the question of an action.
    fn look(&self, action: usize) -> (usize, u8, u8) {
        let row = &self.actions[action];
        (action, row.question.id, row.request)
    }

    /// `end_runs`
    fn end(&mut self, flaw: Flaw, state: ActionState) {
        self.run.state = Over(state);
        for action in &mut self.actions {
            if state != Succeeded && matches!(action.state, Retrying | WaitingApproval) {
                action.state = Cancelled;
            }
            if flaw != Flaw::EndLeavesQuestion {
                action.close(Expired);
            }
        }
    }

    /// `wake_answered`
    fn wake(&mut self, action: usize) {
        let action = &mut self.actions[action];
        if action.state != WaitingApproval {
            action.close(Withdrawn);
        }
        if self.run.state == Scheduled && !action.is_asked() {
            self.run.state = Ready;
        }
    }
}

impl State {
    fn first(&self) -> &Workspace {
        &self.workspaces[0]
    }

    fn is_locked(&self, run: RunId) -> bool {
        self.row == Row::Locked && run == 0
    }

    fn all(&self, holds: impl Fn(RunId, usize, &ActionRow) -> bool) -> bool {
        let mut runs = self.workspaces.iter().enumerate();
        runs.all(|(run, of)| {
            let mut rows = of.actions.iter().enumerate();
            rows.all(|(id, row)| holds(run, id, row))
        })
    }

    /// The keys under which an action may have been done, or will be.
    fn keys(&self, run: RunId, action: usize) -> u8 {
        let is_sent = |one: &&Worker| one.stage == Begun && (one.run, one.action) == (run, action);
        let sending = self.workers.iter().filter(is_sent);
        let keys = self.workspaces[run].actions[action].keys;
        sending.fold(keys, |keys, one| keys | 1 << one.key)
    }
}

#[derive(Clone, Copy)]
struct Execution {
    flaw: Flaw,
    scope: Scope,
}

impl Execution {
    /// Whether a version of the policy asks a person.
    fn asks(&self, version: u8) -> bool {
        self.scope.asks != (version % 2 == 1)
    }

    fn takes_other_approval(&self, s: &Workspace) -> bool {
        let is_approved = |any: &ActionRow| any.question.state == Approved;
        self.flaw == Flaw::ApprovalOfOther && s.actions.iter().any(is_approved)
    }

    /// The first action that is not done.
    fn next(&self, s: &Workspace) -> Option<usize> {
        let is_done = |&action: &usize| matches!(s.actions[action].state, Succeeded | Told);
        (0..self.scope.actions).find(|action| !is_done(action))
    }

    fn load(&self, s: &Workspace, worker: Worker) -> Worker {
        let next = self.next(s);
        let action = next.unwrap_or_default();
        let row = s.actions[action];
        let plan = match row.question.state {
            _ if next.is_none() => End(true),
            // It failed, which was answered late.
            _ if s.run.idle > MAX_IDLE || row.state == Failed => End(false),
            _ if s.is_held => LetGo,
            Declined => Deny,
            _ if !self.asks(s.version) || self.takes_other_approval(s) => Request,
            Approved => Request,
            Overdue | Expired => Deny,
            Unasked | Pending | Withdrawn => Ask,
        };
        Worker {
            stage: Planned(plan),
            run: worker.run,
            turn: worker.turn,
            action,
            begun: row.begun,
            answered: row.answered,
            unanswered: row.unanswered,
            key: row.key,
            was_asked: row.question.state != Unasked,
            version: s.version,
        }
    }

    /// `begin_attempts`. Returns whether the attempt has begun.
    fn begin(&self, s: &mut Workspace, worker: Worker) -> bool {
        let is = |flaw| self.flaw == flaw;
        let row = s.actions[worker.action];
        let is_approved = row.question.state == Approved || self.takes_other_approval(s);
        let is_denied = worker.was_asked && row.question.state == Declined;
        let may = (s.is_of_turn(worker.turn) || is(Flaw::BeginWithoutTurn) && !s.is_over())
            && (!s.run.is_cancelled || is(Flaw::BeginIgnoresCancel))
            && (!s.is_held || is(Flaw::BeginIgnoresHold))
            && (worker.version == s.version || is(Flaw::BeginIgnoresPolicy))
            && (!self.asks(worker.version) || is_approved)
            && (!is_denied || is(Flaw::BeginIgnoresDenial))
            && (row.begun == worker.begun || row.begun == worker.begun + 1)
            && (row.answered == worker.answered || is(Flaw::BeginIgnoresAnswer));
        if !may {
            return false;
        }
        let is_new = row.begun == worker.begun;
        let is_founded = s.is_of_turn(worker.turn)
            && !(s.run.is_cancelled || s.is_held || row.question.state == Declined)
            && worker.version == s.version
            && (!self.asks(s.version) || row.is_approved());
        s.is_unfounded |= is_new && !is_founded;
        let action = &mut s.actions[worker.action];
        action.state = Running;
        action.begun += u8::from(is_new);
        action.unanswered += u8::from(is_new);
        if worker.was_asked && !is(Flaw::BeginLeavesQuestion) {
            action.close(Withdrawn);
        }
        if s.is_of_turn(worker.turn) {
            s.run.state = RunState::Taken;
        }
        true
    }

    /// How an action ends that failed or was denied, and what that makes of the run. `left` is the
    /// number of attempts that may have been done.
    fn fails(&self, worker: Worker, left: u8, state: ActionState) -> (ActionState, ActionState) {
        let is_call = self.scope.actions > 1 && worker.action == 0;
        match is_call && (left == 0 || self.flaw == Flaw::TellsUnknown) {
            true => (Told, Running),
            false => (state, if is_call { Failed } else { state }),
        }
    }

    /// `record_answers`. Returns what the turn makes of the run, and whether the answer counts.
    fn record(&self, s: &mut Workspace, worker: Worker, outcome: Outcome) -> (ActionState, bool) {
        let is = |flaw| self.flaw == flaw;
        let attempt = worker.begun + 1;
        let settled = match outcome {
            Done | Refused => u8::MAX,
            Busy | Unsent | Unseen => 1,
            Lost => 0,
        };
        let is_final = outcome == Refused || attempt.is_multiple_of(MAX_ATTEMPTS);
        let left = (worker.unanswered + 1).saturating_sub(settled);
        let (state, then) = match outcome {
            Done => (Succeeded, Running),
            Unsent | Unseen => (Retrying, Fresh),
            _ if is_final => self.fails(worker, left, Failed),
            _ => (Retrying, Retrying),
        };
        let is_ours = s.is_of_turn(worker.turn);
        let action = &mut s.actions[worker.action];
        let may_say = outcome != Unseen || is_ours || is(Flaw::WithdrawsWithoutTurn);
        let is_latest = action.begun == attempt && may_say;
        let counts = is_latest
            && (action.answered < attempt || is(Flaw::AnswerCountsTwice))
            && (is_ours || !is(Flaw::AnswerNeedsTurn));
        if is_latest && action.reached < attempt {
            let is_open = matches!(action.state, Running | WaitingApproval);
            if state == Succeeded || is_open && matches!(state, Failed | Told) {
                action.kept = state;
            }
            action.reached = attempt;
        }
        if counts {
            let is_over = matches!(state, Failed | Told) && !is(Flaw::FailureLeavesQuestion);
            let ends_question = action.state == WaitingApproval && is_over;
            if action.state == Running || state == Succeeded || ends_question {
                action.state = state;
            }
            action.answered = attempt;
            action.unanswered = action.unanswered.saturating_sub(settled);
        }
        (then, counts)
    }

    /// `record_changes` and `ask_approvals`, in a turn that lasts. A change counts if the attempts
    /// are as the turn has seen them. Returns what the turn makes of the run.
    fn change(&self, s: &mut Workspace, worker: Worker, plan: Plan) -> ActionState {
        let action = &mut s.actions[worker.action];
        let is_seen = (action.begun, action.answered) == (worker.begun, worker.answered);
        let (state, then) = match plan {
            Ask => (WaitingApproval, WaitingApproval),
            Deny => self.fails(worker, worker.unanswered, Denied),
            End(true) => return Succeeded,
            End(false) => return Failed,
            LetGo | Request => return Fresh,
        };
        if is_seen || self.flaw == Flaw::ChangeIgnoresAnswer {
            action.state = state;
        } else if plan == Deny {
            // The run is let go of: the next turn sees the answer.
            return Fresh;
        }
        if plan == Deny && self.flaw != Flaw::DenialLeavesQuestion {
            action.close(Expired);
        }
        if plan == Ask && matches!(action.question.state, Unasked | Withdrawn) {
            action.question.id += u8::from(self.flaw != Flaw::QuestionKeepsId);
            action.question.state = Pending;
        }
        then
    }

    /// A step of a turn: what came of the action, and what becomes of the run if the turn lasts.
    /// Returns whether the worker goes on.
    fn write(&self, s: &mut Workspace, worker: Worker) -> bool {
        let is_ours = s.is_of_turn(worker.turn);
        let (then, counts) = match worker.stage {
            Answered(outcome) => self.record(s, worker, outcome),
            Planned(plan) if is_ours => (self.change(s, worker, plan), false),
            _ => (Fresh, false),
        };
        if !is_ours {
            if counts && self.flaw != Flaw::LateAnswerForgetsRun {
                s.wake(worker.action);
            }
            return false;
        }
        let is_last = then == Running && self.next(s).is_none();
        let then = if is_last { Succeeded } else { then };
        match then {
            Succeeded | Failed | Denied => s.end(self.flaw, then),
            _ if s.run.is_cancelled => s.end(self.flaw, Cancelled),
            _ => {
                s.run.idle = 0;
                s.run.state = match then {
                    Running => RunState::Taken,
                    Retrying | WaitingApproval => Scheduled,
                    _ => Ready,
                };
            }
        }
        if then == WaitingApproval && self.flaw != Flaw::ReleaseForgetsApproval {
            s.wake(worker.action);
        }
        s.run.state == RunState::Taken
    }

    /// `retry_run`
    fn retry(&self, s: &mut Workspace, is_replaced: bool) {
        for action in &mut s.actions {
            // Retrying is what was answered after the run was over.
            if !matches!(action.state, Failed | Denied | Cancelled | Retrying) {
                continue;
            }
            (action.state, action.kept) = (Retrying, Fresh);
            let is_known = action.unanswered == 0;
            action.key += u8::from(is_known || self.flaw == Flaw::NewKeyAlways);
            let is_new = is_known && (is_replaced || action.begun > 0);
            action.request += u8::from(is_new);
            let is_kept = match action.question.state {
                Unasked => true,
                Declined | Expired => false,
                _ => !is_new || self.flaw == Flaw::RetryKeepsApproval,
            };
            if !is_kept {
                action.question.state = Withdrawn;
            }
        }
        s.run = Run::default();
    }

    /// The runs that may be taken: no locked one, and none that the same worker has in hand.
    fn due(&self, s: &State) -> Vec<RunId> {
        let has = |one: &Worker, run| one.stage != Idle && one.run == run;
        let is_in_hand = |run| s.workers.iter().any(|one| has(one, run));
        let may_be_in_hand = !self.scope.has_neighbour || self.flaw == Flaw::TakesWhatItHas;
        let mut due = Vec::from([0, 1]);
        due.retain(|&run| s.workspaces[run].is_due() && (may_be_in_hand || !is_in_hand(run)));
        if self.flaw == Flaw::TakeFailsWhole && due.iter().any(|&run| s.is_locked(run)) {
            due.clear();
        }
        due.retain(|&run| !s.is_locked(run));
        due
    }

    /// Whether a worker waits for a statement that the lock fails. The first time, the statement is
    /// for all runs that wait for it; then it is repeated for each.
    fn meets_lock(&self, s: &State, worker: Worker) -> bool {
        let mut batch = s.workers.iter();
        let is_of_batch = |one: &Worker| one.statement() == worker.statement();
        match self.flaw {
            Flaw::BatchFailsWhole => batch.any(|one| is_of_batch(one) && s.is_locked(one.run)),
            _ => s.is_locked(worker.run),
        }
    }

    fn step(&self, s: &mut State, action: Action) {
        let before = s.workspaces;
        let first = &mut s.workspaces[0];
        match action {
            Take(worker, id) => {
                let one = &mut s.workspaces[id];
                one.flushed.get_or_insert(one.run);
                s.tokens += 1;
                one.run.state = RunState::Taken;
                one.run.turn = match self.flaw {
                    Flaw::ForgottenTurnIsGivenAgain => one.run.turn + 1,
                    _ => s.tokens,
                };
                one.run.idle += 1;
                s.workers[worker] = Worker::taken(id, one.run.turn);
            }
            Load(worker) => {
                let one = s.workers[worker];
                s.workers[worker] = self.load(&s.workspaces[one.run], one);
            }
            Begin(worker, is_seen) => {
                let one = s.workers[worker];
                let has_begun = self.begin(&mut s.workspaces[one.run], one);
                if is_seen {
                    let stage = if has_begun { Begun } else { Planned(LetGo) };
                    s.workers[worker].stage = stage;
                }
            }
            Send(worker, outcome) => {
                let one = &mut s.workers[worker];
                one.stage = Answered(outcome);
                let action = &mut s.workspaces[one.run].actions[one.action];
                match outcome {
                    Done | Lost => action.keys |= 1 << one.key,
                    // So earlier attempts whose answers were lost were not done, either.
                    Refused => action.keys &= !(1 << one.key),
                    Busy | Unsent | Unseen => {}
                }
                action.done = (action.done + u8::from(outcome == Done)).min(2);
                action.is_unsure |= outcome == Lost;
            }
            Write(worker, is_seen) => {
                let one = s.workers[worker];
                let next = match self.write(&mut s.workspaces[one.run], one) {
                    true => Worker::taken(one.run, one.turn),
                    false => Worker::default(),
                };
                if is_seen {
                    s.workers[worker] = next;
                }
            }
            Crash(worker) => {
                for (id, one) in s.workers.iter_mut().enumerate() {
                    if id == worker || self.scope.has_neighbour {
                        let one = std::mem::take(one);
                        s.workspaces[one.run].actions[one.action].is_unsure |= one.has_open();
                    }
                }
            }
            Forget => {
                for one in &mut s.workspaces {
                    one.run = one.flushed.unwrap_or(one.run);
                }
            }
            Lock => s.row = Row::Locked,
            Unlock => s.row = Row::Released,
            LeaseOver(id) => {
                let Workspace { run, actions, .. } = &mut s.workspaces[id];
                run.state = Abandoned;
                for one in s.workers.iter_mut().filter(|one| one.turn == run.turn) {
                    actions[one.action].is_unsure |= one.has_open();
                    // Who is paused for so long does not send any more, and says so.
                    if one.stage == Begun && self.flaw != Flaw::SendsLate {
                        one.stage = Answered(Unsent);
                    }
                }
            }
            Due(id, is_overdue) => {
                let one = &mut s.workspaces[id];
                one.run.state = Ready;
                for action in one.actions.iter_mut().filter(|_| is_overdue) {
                    action.close(Overdue);
                }
            }
            Cancel if first.run.state == RunState::Taken => first.run.is_cancelled = true,
            Cancel => first.end(self.flaw, Cancelled),
            Hold => first.is_held = true,
            Release => first.is_held = false,
            ChangePolicy => first.version += 1,
            Look(action) => first.shown = Some(first.look(action)),
            Answer(approves) => {
                let (action, id, shown) = first.shown.take().unwrap_or_default();
                let state = if approves { Approved } else { Declined };
                first.actions[action].question = Question { id, state, shown };
                if self.flaw != Flaw::ApprovalForgetsRun {
                    first.wake(action);
                }
            }
            Retry(is_replaced) => self.retry(first, is_replaced),
        }
        let is_written = match action {
            Begin(..) | Write(..) => s.workspaces != before,
            Cancel | Hold | Release | ChangePolicy | Answer(_) | Retry(_) | Forget => true,
            _ => false,
        };
        if is_written {
            s.workspaces.iter_mut().for_each(|one| one.flushed = None);
        }
        s.workers.sort_unstable();
    }

    /// Whether nothing is left but faults and orders.
    fn is_end(&self, s: &State) -> bool {
        let mut left = Vec::new();
        self.actions(s, &mut left);
        left.iter().all(|&action| self.costs(s, action) != (0, 0))
    }

    /// Faults and orders that an action costs.
    fn costs(&self, s: &State, action: Action) -> (u8, u8) {
        let has_it = |run: &Run, one: &Worker| one.stage != Idle && one.turn == run.turn;
        let is_in_hand = |run: &Run| s.workers.iter().any(|one| has_it(run, one));
        let is_fault = match action {
            Begin(_, false) | Write(_, false) | Crash(_) | Forget => true,
            Send(_, Lost | Unsent | Unseen) => true,
            Lock | Unlock => true,
            LeaseOver(id) => is_in_hand(&s.workspaces[id].run),
            Due(id, is_overdue) => {
                !is_overdue && s.workspaces[id].actions.iter().any(ActionRow::is_asked)
            }
            _ => false,
        };
        let is_order = matches!(action, Cancel | Hold | ChangePolicy | Retry(_));
        (is_fault.into(), is_order.into())
    }
}

impl Model for Execution {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let mut s = State::default();
        if !self.scope.has_neighbour {
            s.workspaces[1].run.state = Over(Succeeded);
        }
        vec![s]
    }

    fn actions(&self, s: &State, actions: &mut Vec<Action>) {
        for (id, &worker) in s.workers.iter().enumerate() {
            match worker.stage {
                // Two idle workers are alike.
                Idle if id == 0 || s.workers[0].stage != Idle => {
                    actions.extend(self.due(s).into_iter().map(|run| Take(id, run)));
                }
                Idle => {}
                Stage::Taken => actions.push(Load(id)),
                _ if worker.statement().is_some() && self.meets_lock(s, worker) => {}
                Planned(Request) => {
                    actions.extend([Begin(id, true), Begin(id, false)]);
                    if self.flaw == Flaw::SendBeforeCommit {
                        actions.push(Send(id, Done));
                    }
                    // With its recording, whose commit is unseen.
                    if worker.begun == 0 && !worker.was_asked {
                        actions.push(Send(id, Unseen));
                    }
                }
                Begun => {
                    actions.extend([Done, Busy, Lost, Unsent].map(|outcome| Send(id, outcome)));
                    if s.workspaces[worker.run].actions[worker.action].done == 0 {
                        actions.push(Send(id, Refused));
                    }
                }
                Planned(_) | Answered(_) => {
                    actions.extend([Write(id, true), Write(id, false)]);
                }
            }
            if worker.stage != Idle {
                actions.push(Crash(id));
            }
        }
        for (id, one) in s.workspaces.iter().enumerate() {
            match one.run.state {
                RunState::Taken => actions.push(LeaseOver(id)),
                Scheduled => actions.extend([Due(id, true), Due(id, false)]),
                _ => {}
            }
        }
        if s.workspaces.iter().any(|one| one.flushed.is_some()) {
            actions.push(Forget);
        }
        match s.row {
            Row::Free if self.scope.has_neighbour => actions.push(Lock),
            Row::Locked => actions.push(Unlock),
            _ => {}
        }
        let first = s.first();
        for id in (0..2).filter(|&id| first.actions[id].question.state == Pending) {
            // The answer is by the id that was shown, whatever the request is now.
            let (now, shown) = (first.look(id), first.shown);
            if shown.is_some_and(|shown| (shown.0, shown.1) == (now.0, now.1)) {
                actions.extend([Answer(true), Answer(false)]);
            }
            if shown != Some(now) {
                actions.push(Look(id));
            }
        }
        match first.run.state {
            Over(Succeeded) => {}
            Over(_) => actions.extend([Retry(false), Retry(true)]),
            _ => {
                actions.push(if first.is_held { Release } else { Hold });
                actions.push(ChangePolicy);
                if !first.run.is_cancelled {
                    actions.push(Cancel);
                }
            }
        }
        actions.retain(|&action| {
            let (faults, orders) = self.costs(s, action);
            s.faults + faults <= self.scope.faults && s.orders + orders <= self.scope.orders
        });
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut next = last.clone();
        let (faults, orders) = self.costs(last, action);
        next.faults += faults;
        next.orders += orders;
        self.step(&mut next, action);
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let always = Property::<Self>::always;
        let sometimes = Property::<Self>::sometimes;
        vec![
            always(KEYS, |_, s| {
                s.all(|run, id, row| s.keys(run, id) >> row.key << row.key == s.keys(run, id))
            }),
            always(COUNTED, |_, s| {
                let is_done = |row: &ActionRow| row.unanswered > 0 || row.state == Succeeded;
                s.all(|run, id, row| is_done(row) || s.keys(run, id) >> row.key & 1 == 0)
            }),
            always(FOUNDED, |_, s| {
                !s.workspaces.iter().any(|one| one.is_unfounded)
            }),
            always(KEPT, |_, s| {
                let is_kept = |row: &ActionRow| row.kept == Fresh || row.state == row.kept;
                s.all(|_, _, row| row.answered >= row.reached && is_kept(row))
            }),
            always(SHOWN, |_, s| {
                s.all(|_, _, row| row.question.state != Approved || row.is_approved())
            }),
            always(OPEN, |_, s| {
                s.all(|run, _, row| {
                    let waits = row.state == WaitingApproval && !s.workspaces[run].is_over();
                    !row.is_asked() || waits
                })
            }),
            always(UNSEEN, |model, s| {
                let waits = |row: ActionRow| match row.state {
                    WaitingApproval => row.is_asked(),
                    state => state == Retrying,
                };
                s.workspaces.iter().all(|one| {
                    let next = model.next(one).map(|id| one.actions[id]);
                    one.run.state != Scheduled || next.is_some_and(waits)
                })
            }),
            always(SINGLE, |_, s| {
                let [one, other] = s.workers;
                let attempt = |worker: Worker| (worker.run, worker.action, worker.begun);
                !(one.has_open() && other.has_open() && attempt(one) == attempt(other))
            }),
            always(ONCE, |_, s| {
                s.all(|_, _, row| row.is_unsure || row.done <= 1)
            }),
            always(TOLD, |_, s| {
                s.all(|run, id, row| row.state != Told || s.keys(run, id) == 0)
            }),
            always(STUCK, |model, s| {
                let may_rest = |run: RunId| s.workspaces[run].is_over() || s.is_locked(run);
                (0..2).all(may_rest) || !model.is_end(s)
            }),
            sometimes("two attempts are open", |_, s| {
                let [one, other] = s.workers;
                one.has_open() && other.has_open() && one.run == other.run
            }),
            sometimes("a late answer counts in a cancelled run", |_, s| {
                let s = s.first();
                s.run.state == Over(Cancelled) && s.actions[0].state == Succeeded
            }),
            sometimes("a retry is done under a new key", |_, s| {
                let s = s.first();
                s.actions[0].state == Succeeded && s.actions[0].key > 0
            }),
            sometimes("somebody looks at a former question", |_, s| {
                let s = s.first();
                s.shown.is_some_and(|shown| shown != s.look(shown.0))
            }),
            sometimes("a request that is made anew is approved", |_, s| {
                let s = s.first();
                s.actions[0].question.state == Approved && s.actions[0].request > 0
            }),
            sometimes("an agent goes on after a denial", |_, s| {
                let s = s.first();
                s.actions[0].state == Told && s.actions[1].state == Succeeded
            }),
            sometimes("a run ends beside one that is locked", |_, s| {
                s.is_locked(0) && !s.first().is_over() && s.workspaces[1].is_over()
            }),
            sometimes("a run is given up", |_, s| {
                let s = s.first();
                s.run.idle > MAX_IDLE && s.is_over()
            }),
        ]
    }
}

const KEYS: &str = "no key is replaced under which the action may be done";
const COUNTED: &str = "what may have been done is counted as unanswered";
const FOUNDED: &str = "no attempt begins without what it was decided by";
const KEPT: &str = "an answer that has reached the database counts, and stays";
const SHOWN: &str = "nobody approves a request that was not shown";
const OPEN: &str = "a question is open only while its action waits for it";
const UNSEEN: &str = "no run waits for what has come";
const SINGLE: &str = "no two workers have the same attempt";
const ONCE: &str = "what is answered in time is done once";
const TOLD: &str = "no agent is told that a call failed which may be done";
const STUCK: &str = "no run is stuck, unless its own row is locked";

/// Goes through every schedule, and panics for one in which a promise is broken.
pub fn check_every_schedule() {
    let threads = available_parallelism().map_or(1, NonZero::get);
    let mut reached = BTreeSet::new();
    for scope in [ALLOWED, ASKED, CALL, TWO_RUNS] {
        let flaw = Flaw::None;
        let model = Execution { flaw, scope };
        let checker = model.checker().threads(threads).spawn_bfs().join();
        let (states, depth) = (checker.unique_state_count(), checker.max_depth());
        println!("run model: {states} states, depth {depth}");
        // What is reached in one scope need not be in another.
        for property in model.properties() {
            if property.expectation == Expectation::Always {
                checker.assert_no_discovery(property.name);
            }
        }
        assert!(states > 100_000 && depth > 40, "the model has shrunk");
        reached.extend(checker.discoveries().into_keys());
    }
    println!("run model: {} of 8 reached: {reached:?}", reached.len());
    assert_eq!(reached.len(), 8);
}

/// How many steps a schedule takes that breaks the promise.
fn steps_to_break(promise: &'static str, model: Execution) -> usize {
    let broken = HasDiscoveries::AnyOf([promise].into());
    let checker = model.checker().finish_when(broken);
    let found = checker.spawn_bfs().join().discovery(promise);
    found.expect("the flaw goes unseen").into_actions().len()
}

/// Panics if one of the broken variants keeps its promise.
pub fn check_every_flaw() {
    for &(flaw, promise, scope) in FLAWS {
        let steps = steps_to_break(promise, Execution { flaw, scope });
        println!("run model: {flaw:?}: {promise:?} does not hold after {steps} steps");
    }
}
