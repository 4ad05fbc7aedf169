//! Tests of the store: one suite for both databases, and failures of each: crashes, full disks,
//! restarts, timeouts.
//!
//! A private `PostgreSQL` is started from Debian's packages; without it, the tests that need it
//! fail.
#![expect(clippy::unwrap_used, reason = "a test may unwrap in its helpers too")]

mod audit;
mod authority;
mod blobs;
#[expect(dead_code, reason = "the tests of the server use the rest")]
mod bucket;
mod contract;
mod crash;
mod datasets;
mod disk;
mod fixture;
mod jobs;
mod migrations;
mod outage;
#[expect(dead_code, reason = "the tests of the server use the rest")]
mod postgres;

use std::pin::Pin;
use std::process::ExitCode;

use fixture::{Backend, Fixture};
use libtest_mimic::{Arguments, Trial};

type Test = fn(Fixture) -> Pin<Box<dyn Future<Output = ()> + Send>>;

/// Tests by name, each with a fresh database.
macro_rules! on_both {
    ($($module:ident :: $name:ident),* $(,)?) => {
        vec![$((
            concat!(stringify!($module), "::", stringify!($name)),
            (|fixture| Box::pin($module::$name(fixture))) as Test,
        )),*]
    };
}

/// Tests by name that create what they need.
macro_rules! alone {
    ($($module:ident :: $name:ident),* $(,)?) => {
        vec![$(Trial::test(concat!(stringify!($module), "::", stringify!($name)), || {
            fixture::run($module::$name());
            Ok(())
        })),*]
    };
}

fn main() -> ExitCode {
    // A copy of this program, started as a helper process.
    if let Some(code) = crash::child() {
        return code;
    }
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(2);
    let mut trials = on_both_databases();
    trials.extend(in_buckets());
    trials.extend(without_fixture());
    let conclusion = libtest_mimic::run(&arguments, trials);
    postgres::stop_shared();
    conclusion.exit_code()
}

/// Tests of what both databases promise.
fn on_both_databases() -> Vec<Trial> {
    let tests = on_both![
        contract::a_session_is_created_and_updated,
        contract::a_session_expires_when_idle_and_only_then,
        contract::a_lease_protects_until_it_expires_or_is_released,
        contract::a_session_of_a_live_server_elsewhere_is_not_taken,
        contract::an_execution_is_recorded_and_counted,
        contract::a_running_execution_is_finished,
        contract::an_execution_ends_once,
        contract::a_failed_write_leaves_nothing,
        contract::executions_are_paged,
        contract::files_are_found_and_expire,
        contract::latest_chart_ignores_insertion_order,
        contract::key_revocations_are_final,
        contract::a_checkpoint_replaces_older_ones_only,
        contract::a_deletion_covers_what_was_created_before_it,
        contract::owners_are_isolated,
        contract::unusual_names_and_long_texts_round_trip,
        contract::concurrent_writers_lose_nothing,
        datasets::a_dataset_is_stored_replaced_and_dropped,
        datasets::datasets_are_paged_by_name_and_belong_to_one_owner,
        audit::rows_are_filtered_and_paged,
        audit::rows_are_never_changed,
        audit::retention_keeps_running_executions,
        audit::a_day_has_a_limit_and_says_what_was_left_out,
        audit::a_check_names_the_row_that_was_tampered_with,
        audit::processes_and_servers_write_whole_chains,
        audit::a_purge_leaves_chains_that_can_be_checked,
        audit::rows_from_before_the_chains_are_told_apart,
        jobs::a_job_is_queued_claimed_renewed_and_ended_once,
        jobs::callers_have_turns_and_priority_counts_within_a_caller,
        jobs::a_queue_has_limits_in_all_and_for_each_caller,
        jobs::a_key_makes_one_job,
        jobs::an_expired_claim_fails_the_job_or_returns_it,
        jobs::a_job_of_a_session_waits_for_the_server_that_has_it,
        jobs::a_job_is_cancelled_while_it_waits_or_runs,
        jobs::concurrent_claims_never_share_a_job,
        jobs::jobs_are_listed_in_pages_and_purged,
        jobs::many_jobs_of_three_callers_are_claimed_once_and_in_turns,
        jobs::an_occurrence_makes_one_job,
        jobs::a_webhook_is_due_with_the_end_of_its_job_and_delivered_once,
        jobs::undelivered_webhooks_are_bounded_and_keep_their_jobs,
        jobs::waiting_jobs_are_counted_through_every_change,
        migrations::a_second_open_changes_nothing,
        migrations::concurrent_opens_migrate_once,
        migrations::each_step_may_be_the_last_before_a_crash,
        migrations::a_newer_store_is_refused,
        crash::acknowledged_writes_survive_a_kill,
        crash::a_start_may_be_killed_at_any_time,
        blobs::blobs_round_trip,
        blobs::equal_blobs_are_stored_once,
        blobs::too_large_blobs_leave_nothing,
        blobs::only_garbage_is_collected,
        blobs::what_is_replaced_goes_unless_it_is_wanted,
    ];
    let both = tests.into_iter().flat_map(|(name, test)| {
        [Backend::Sqlite, Backend::Postgres].map(|backend| {
            Trial::test(format!("{name} on {}", backend.name()), move || {
                fixture::run(async move { test(Fixture::new(backend).await).await });
                Ok(())
            })
        })
    });
    both.collect()
}

/// Tests that create their own database or bucket, or need none.
fn without_fixture() -> Vec<Trial> {
    alone![
        blobs::blobs_round_trip_in_any_object_store,
        blobs::large_blobs_are_uploaded_in_parts,
        blobs::a_bucket_that_refuses_us_is_refused,
        blobs::a_bucket_belongs_to_one_database,
        blobs::a_bucket_is_believed_by_its_authority,
        blobs::a_bucket_that_is_away_comes_back,
        blobs::spool_leftovers_are_removed,
        blobs::damaged_blobs_are_detected,
        disk::a_full_disk_is_reported_until_it_has_space,
        disk::a_read_only_disk_is_reported,
        disk::a_damaged_file_is_named,
        outage::all_url_schemes_are_accepted,
        outage::tls_is_spoken_as_the_address_says,
        outage::missing_tls_is_reported,
        outage::the_url_is_never_shown,
        outage::a_restart_costs_at_most_one_retry_per_caller,
        outage::a_killed_connection_costs_one_call_at_most,
        outage::silence_times_out,
        outage::silence_ends_a_blob_that_is_being_written,
        outage::recovers_from_an_absent_database,
    ]
}

/// Blob tests that a bucket must pass too.
fn in_buckets() -> impl Iterator<Item = Trial> {
    let tests = on_both![
        blobs::blobs_round_trip,
        blobs::equal_blobs_are_stored_once,
        blobs::too_large_blobs_leave_nothing,
        blobs::only_garbage_is_collected,
    ];
    tests.into_iter().map(|(name, test)| {
        Trial::test(format!("{name} in S3"), move || {
            fixture::run(
                async move { test(blobs::with_bucket(bucket::Bucket::start()).await).await },
            );
            Ok(())
        })
    })
}
