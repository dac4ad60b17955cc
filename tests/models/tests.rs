//! Every schedule of each model, and every variant that is broken on purpose.

use letterbox_models::{intake, runs};

#[test]
fn every_schedule_of_intake_keeps_the_promises() {
    intake::check_every_schedule();
}

#[test]
fn every_flaw_of_intake_breaks_a_promise() {
    intake::check_every_flaw();
}

#[test]
fn every_schedule_of_runs_keeps_the_promises() {
    runs::check_every_schedule();
}

#[test]
fn every_flaw_of_runs_breaks_a_promise() {
    runs::check_every_flaw();
}
