//! The scenarios, each in many schedules.

use letterbox_schedules::{check, intake_runs, publisher_runs, supervisor_runs};

#[test]
fn every_caller_of_the_publisher_is_told_the_truth_at_once() {
    let expected = ["confirmed", "refused", "lost", "unavailable", "given up"];
    let scenario = publisher_runs::every_caller_is_told_the_truth_at_once;
    check(schedules(), scenario, &expected);
}

#[test]
fn a_silent_connection_is_given_up() {
    let expected = ["confirmed", "timed_out", "lost", "unavailable"];
    let scenario = publisher_runs::a_silent_connection_is_given_up;
    // Each of them is long.
    check(schedules() / 10, scenario, &expected);
}

#[test]
fn a_silent_queue_costs_no_connection() {
    let scenario = publisher_runs::a_silent_queue_costs_no_connection;
    check(
        schedules() / 10,
        scenario,
        &["confirmed", "refused", "kept"],
    );
}

#[test]
fn what_ends_begins_again_until_it_is_stopped() {
    let expected = ["failed", "cut off", "stopped"];
    let scenario = supervisor_runs::what_ends_begins_again_until_it_is_stopped;
    check(schedules(), scenario, &expected);
}

#[test]
fn every_sender_is_answered_and_no_batch_stays_open() {
    let expected = [
        "first",
        "duplicate",
        "in progress",
        "unavailable",
        "hung up",
    ];
    let scenario = intake_runs::every_sender_is_answered_and_no_batch_stays_open;
    check(schedules(), scenario, &expected);
}

/// How many schedules of each.
fn schedules() -> usize {
    let told = std::env::var("LETTERBOX_TEST_SCHEDULES");
    told.map_or(5_000, |told| told.parse().expect("a number"))
}
