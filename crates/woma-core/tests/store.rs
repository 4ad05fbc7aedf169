//! One suite that both databases pass, and what each of them meets alone: crashes, full disks,
//! restarts, silence.
//!
//! A private `PostgreSQL` is started from Debian's packages; without one, the tests that need it
//! fail.
#![expect(clippy::unwrap_used, reason = "a test may unwrap in its helpers too")]

#[path = "store/audit.rs"]
mod audit;
#[path = "store/authority.rs"]
mod authority;
#[path = "store/blobs.rs"]
mod blobs;
#[expect(dead_code, reason = "its other half is for the tests of the server")]
#[path = "store/bucket.rs"]
mod bucket;
#[path = "store/contract.rs"]
mod contract;
#[path = "store/crash.rs"]
mod crash;
#[path = "store/disk.rs"]
mod disk;
#[path = "store/fixture.rs"]
mod fixture;
#[path = "store/migrations.rs"]
mod migrations;
#[path = "store/outage.rs"]
mod outage;
#[expect(dead_code, reason = "its other half is for the tests of the server")]
#[path = "store/postgres.rs"]
mod postgres;

use std::pin::Pin;
use std::process::ExitCode;

use fixture::{Backend, Fixture};
use libtest_mimic::{Arguments, Trial};

type Test = fn(Fixture) -> Pin<Box<dyn Future<Output = ()> + Send>>;

/// Tests by name, each of which takes a fresh database.
macro_rules! on_both {
    ($($module:ident :: $name:ident),* $(,)?) => {
        vec![$((
            concat!(stringify!($module), "::", stringify!($name)),
            (|fixture| Box::pin($module::$name(fixture))) as Test,
        )),*]
    };
}

/// Tests by name, that make what they need.
macro_rules! alone {
    ($($module:ident :: $name:ident),* $(,)?) => {
        vec![$(Trial::test(concat!(stringify!($module), "::", stringify!($name)), || {
            fixture::run($module::$name());
            Ok(())
        })),*]
    };
}

fn main() -> ExitCode {
    // A copy of this program that is to be killed.
    if let Some(code) = crash::child() {
        return code;
    }
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(2);
    let tests = on_both![
        contract::a_session_is_made_and_changed,
        contract::a_session_expires_when_idle_and_only_then,
        contract::an_execution_is_begun_and_finished,
        contract::an_execution_may_be_finished_that_nobody_began,
        contract::an_execution_ends_once,
        contract::what_fails_leaves_nothing,
        contract::executions_come_in_pages,
        contract::files_are_found_and_expire,
        contract::the_latest_chart_is_the_latest,
        contract::keys_are_added_and_revoked_for_good,
        contract::checkpoints_follow_each_other,
        contract::what_is_marked_is_forgotten_before_the_database_knows,
        contract::what_follows_a_forgotten_session_stays,
        contract::owners_do_not_see_each_other,
        contract::odd_names_and_long_texts_come_back,
        contract::twenty_writers_at_once,
        contract::writes_in_the_background_settle,
        audit::rows_are_filtered_and_paged,
        audit::rows_are_never_changed,
        audit::retention_leaves_what_runs,
        migrations::a_second_open_changes_nothing,
        migrations::many_open_at_once,
        migrations::each_step_may_be_the_last_before_a_crash,
        migrations::a_newer_store_is_refused,
        crash::nothing_acknowledged_is_lost,
        crash::a_start_may_be_killed_at_any_time,
        blobs::contents_come_back,
        blobs::a_content_is_kept_once,
        blobs::too_large_is_refused_without_a_trace,
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
    let mut trials: Vec<Trial> = both.collect();
    trials.extend(in_buckets());
    trials.extend(by_themselves());
    let conclusion = libtest_mimic::run(&arguments, trials);
    postgres::stop_shared();
    conclusion.exit_code()
}

/// Those that make their own database or bucket, or need none.
fn by_themselves() -> Vec<Trial> {
    alone![
        blobs::objects_hold_them_too,
        blobs::a_part_is_asked_for_as_such,
        blobs::a_bucket_that_refuses_us_is_refused,
        blobs::a_bucket_belongs_to_one_database,
        blobs::a_bucket_is_believed_by_its_authority,
        blobs::a_bucket_that_is_away_comes_back,
        blobs::leftovers_are_swept,
        blobs::a_damaged_content_is_noticed,
        disk::a_full_disk_is_named_and_forgotten,
        disk::a_place_that_may_only_be_read_is_named,
        disk::a_damaged_file_is_named,
        outage::all_forms_of_address_work,
        outage::tls_is_spoken_as_the_address_says,
        outage::tls_that_cannot_be_is_said,
        outage::an_address_is_never_shown,
        outage::a_restart_costs_nobody_more_than_a_retry,
        outage::a_killed_connection_costs_one_call_at_most,
        outage::silence_is_an_error_in_time,
        outage::an_absent_database_heals,
        outage::a_session_is_forgotten_though_nobody_answers,
    ]
}

/// What is kept in a bucket is held to the same as what is kept elsewhere.
fn in_buckets() -> impl Iterator<Item = Trial> {
    let tests = on_both![
        blobs::contents_come_back,
        blobs::a_content_is_kept_once,
        blobs::too_large_is_refused_without_a_trace,
        blobs::only_garbage_is_collected,
    ];
    tests.into_iter().map(|(name, test)| {
        Trial::test(format!("{name} in S3"), move || {
            fixture::run(async move { test(blobs::beside(bucket::Bucket::start()).await).await });
            Ok(())
        })
    })
}
