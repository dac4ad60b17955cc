//! The protocols of intake and of runs as finite models, which a model checker (stateright) takes
//! through every schedule of crashes, lost answers, late confirms, takeovers and locked rows.

pub mod intake;
pub mod runs;

/// A row of one workspace that another session may lock, and never let go of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum Row {
    #[default]
    Free,
    Locked,
    /// It was locked, and will not be again.
    Released,
}

/// Says which steps each transition of a model stands for. The compiler finds one that is left out.
macro_rules! stands_for {
    ($($transition:pat => $($step:literal)*;)+) => {
        const _: fn(&Action) = |transition| match transition { $($transition => (),)+ };
        /// Statements and fail points of the protocol, by name.
        pub const STEPS: &[&str] = &[$($($step,)*)+];
    };
}
use stands_for;
