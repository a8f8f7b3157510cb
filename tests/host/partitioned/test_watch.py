"""The driver's actions for its tasks: every row of the table in watch.py."""

from __future__ import annotations

import pytest

from hotspare.host.partitioned import watch
from hotspare.host.partitioned.attempt import Answer
from hotspare.host.partitioned.watch import (
    AbandonJob,
    AttemptState,
    AwaitAttempt,
    JobEnd,
    Question,
    StartJob,
    TaskPhase,
    WatchedTask,
)
from hotspare.runners.spark.partitioned.place import RunningAttempt

LEASE_MS = 10_000


def waiting(now_ms: int = 0) -> WatchedTask:
    task, actions = watch.due_actions(WatchedTask(3, (3, 7)), now_ms, LEASE_MS)
    assert actions == [StartJob(3, 1)]
    return task


def running(now_ms: int = 0) -> WatchedTask:
    task, answer = watch.after_hello(waiting(), 1, 0, "5", now_ms)
    assert (answer, task.phase, task.executor) == (Answer.WELCOME, TaskPhase.RUNNING, "5")
    return task


def test_a_task_is_started_once_and_waits_for_a_slot_as_long_as_it_takes() -> None:
    task = waiting()
    waits, actions = watch.due_actions(task, 10_000_000, LEASE_MS)
    assert (waits.phase, waits.job, actions) == (TaskPhase.WAITING, task.job, [])
    assert watch.next_due_ms(task, LEASE_MS) is None


def test_a_silent_task_is_abandoned_and_another_one_started() -> None:
    task = running(100)
    due_ms = watch.next_due_ms(task, LEASE_MS)
    assert due_ms == 100 + LEASE_MS + 1
    assert watch.due_actions(task, due_ms - 1, LEASE_MS) == (task, [])
    after, actions = watch.due_actions(task, due_ms, LEASE_MS)
    assert actions == [AbandonJob(3, 1, "5", LEASE_MS + 1), StartJob(3, 2)]
    assert (after.phase, after.job, after.executor) == (TaskPhase.WAITING, 2, "")


def test_a_silent_task_of_which_spark_knows_that_it_ended_is_awaited_in_the_same_job() -> None:
    """A new executor may take longer to start than the lease; a new job would only restart that."""
    silent_ms = LEASE_MS + 1
    after, actions = watch.due_actions(running(), silent_ms, LEASE_MS, AttemptState.OVER)
    assert (after.phase, after.job, after.executor) == (TaskPhase.WAITING, 1, "")
    assert actions == [AwaitAttempt(3, silent_ms)]
    assert after.waiting_since_ms == silent_ms
    assert watch.due_actions(after, silent_ms + watch.HELLO_MS - 1, LEASE_MS, AttemptState.OVER) == (after, [])
    assert watch.after_hello(after, 1, 0, "5", silent_ms) == (after, Answer.TURNED_AWAY)
    assert watch.after_report(after, 1, 0, silent_ms, (3, 7), ()) == (after, Answer.TURNED_AWAY)
    again, answer = watch.after_hello(after, 1, 1, "6", 30_000)
    assert (answer, again.phase, again.attempt, again.executor) == (Answer.WELCOME, TaskPhase.RUNNING, 1, "6")
    assert watch.due_actions(again, 30_001, LEASE_MS, AttemptState.OVER) == (again, [])
    assert watch.due_actions(again, 30_001 + LEASE_MS, LEASE_MS)[1] == [AbandonJob(3, 1, "6", LEASE_MS + 1), StartJob(3, 2)]


def test_a_report_renews_the_lease() -> None:
    task, answer = watch.after_report(running(), 1, 0, 9_000, (), ())
    assert answer is Answer.HEARD
    assert watch.due_actions(task, LEASE_MS + 1, LEASE_MS) == (task, [])


@pytest.mark.parametrize(("job", "attempt"), [(1, 1), (2, 0)])
def test_a_report_of_another_attempt_renews_nothing_and_is_turned_away(job: int, attempt: int) -> None:
    task = running()
    assert watch.after_report(task, job, attempt, 9_000, (3, 7), ()) == (task, Answer.TURNED_AWAY)


def test_an_attempt_that_spark_started_again_takes_over_and_the_one_before_is_turned_away() -> None:
    task, answer = watch.after_hello(running(), 1, 2, "6", 500)
    assert (answer, task.attempt, task.executor, task.began_ms) == (Answer.WELCOME, 2, "6", 500)
    assert watch.after_hello(task, 1, 0, "5", 600) == (task, Answer.TURNED_AWAY)
    assert watch.after_hello(task, 1, 2, "6", 700)[1] is Answer.WELCOME  # on another connection


@pytest.mark.parametrize("job", [1, 3])
def test_who_belongs_to_another_job_is_turned_away(job: int) -> None:
    task, _ = watch.due_actions(running(), LEASE_MS + 1, LEASE_MS)
    assert watch.after_hello(task, job, 9, "5", LEASE_MS + 2) == (task, Answer.TURNED_AWAY)
    assert watch.after_job_end(task, job, JobEnd("cancelled"), LEASE_MS + 3) == (task, "")


def test_a_task_that_ends_rests_longer_each_time_and_then_starts_again() -> None:
    task, pauses = running(), []
    now_ms = 0
    for _ in range(9):
        task, failure = watch.after_job_end(task, task.job, JobEnd("diverged"), now_ms)
        assert failure == ""
        assert watch.after_hello(task, task.job, 5, "5", now_ms)[1] is Answer.TURNED_AWAY
        assert watch.due_actions(task, task.due_ms - 1, LEASE_MS) == (task, [])
        pauses.append(task.due_ms - now_ms)
        now_ms = task.due_ms
        task, actions = watch.due_actions(task, now_ms, LEASE_MS)
        assert actions == [StartJob(3, task.job)]
        task, _ = watch.after_hello(task, task.job, 0, "5", now_ms)
    assert pauses == [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000, 60_000]
    task, _ = watch.after_job_end(task, task.job, JobEnd("diverged"), now_ms + watch.STEADY_MS)
    assert task.due_ms == now_ms + watch.STEADY_MS + watch.PAUSE_FIRST_MS


def test_an_attempt_that_runs_for_long_and_never_said_hello_is_abandoned() -> None:
    """It would hold its slot for ever. The second time its executor is ended, too, and each time it may take twice as long."""
    task, _ = watch.due_actions(WatchedTask(0, (3, 7)), 0, LEASE_MS)
    late_ms = watch.HELLO_MS
    assert watch.pending_question(task, late_ms - 1, LEASE_MS) is None
    assert watch.pending_question(task, late_ms, LEASE_MS) is Question.SINCE_WHEN
    young, actions = watch.due_actions(task, late_ms, LEASE_MS, RunningAttempt("4", late_ms - 1))
    assert (young.phase, actions) == (TaskPhase.WAITING, [])
    assert watch.due_actions(task, late_ms, LEASE_MS) == (young, []), "one that has no slot waits for as long as it takes"
    assert watch.pending_question(young, late_ms + 1, LEASE_MS) is None, "it is not asked all the time"
    again, actions = watch.due_actions(task, late_ms, LEASE_MS, RunningAttempt("4", late_ms))
    assert actions == [AbandonJob(0, 1, "", late_ms), StartJob(0, 2)]
    assert (again.phase, again.shards) == (TaskPhase.WAITING, (3, 7))
    assert watch.after_hello(again, 1, 0, "4", late_ms)[1] is Answer.TURNED_AWAY
    assert watch.pending_question(again, 3 * late_ms - 1, LEASE_MS) is None
    third, actions = watch.due_actions(again, 3 * late_ms, LEASE_MS, RunningAttempt("5", 2 * late_ms))
    assert actions == [AbandonJob(0, 2, "5", 2 * late_ms), StartJob(0, 3)]
    assert watch.after_hello(third, 3, 0, "6", 4 * late_ms)[0].hello_ms == watch.HELLO_MS


def test_what_another_start_cannot_help_ends_the_application_unless_it_has_run_before() -> None:
    final = JobEnd("HS-0602 the project was changed", is_final=True)
    task = running()
    assert watch.after_job_end(task, 1, final, 50) == (task, final.reason)
    task, _ = watch.after_report(task, 1, 0, 60, (3, 7), ())
    after, failure = watch.after_job_end(task, 1, final, 70)
    assert (after.phase, failure) == (TaskPhase.RESTING, "")


def test_a_job_that_was_broken_off_is_started_again() -> None:
    after, failure = watch.after_job_end(waiting(), 1, JobEnd("cancelled"), 70)
    assert (after.phase, after.due_ms, failure) == (TaskPhase.RESTING, 1_070, "")


def test_a_report_says_what_is_complete_of_what_it_was_told_to_host() -> None:
    task, _ = watch.after_report(running(), 1, 0, 60, (3, 5), (5,))
    assert (task.complete, task.caught_up, task.has_run) == ({3}, frozenset(), False)
    task, _ = watch.after_report(task, 1, 0, 70, (3, 7), (7,))
    assert (task.complete, task.caught_up, task.has_run) == ({3, 7}, {7}, True)
    for later in watch.after_hello(task, 1, 1, "5", 80)[0], watch.due_actions(task, 71 + LEASE_MS, LEASE_MS)[0]:
        assert (later.complete, later.caught_up) == (frozenset(), frozenset())
