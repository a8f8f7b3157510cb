"""Jobs beside the engine: none waits for another, and one that hangs keeps neither the others nor the end."""

from __future__ import annotations

import threading

from hotspare.host.background import Background

WAIT_S = 60


def test_a_job_that_hangs_keeps_no_other_from_running_and_no_process_from_ending() -> None:
    hung, begun, done = threading.Event(), threading.Event(), threading.Event()

    def hang() -> None:
        begun.set()
        hung.wait(WAIT_S)

    background = Background(close_wait_s=0)
    try:
        background.run(hang)
        assert begun.wait(WAIT_S)
        background.run(done.set)
        assert done.wait(WAIT_S)
        background.close()
        assert not hung.is_set()
    finally:
        hung.set()


def test_the_end_waits_for_a_job_under_way_and_later_ones_are_dropped() -> None:
    begun, go_on, ended = threading.Event(), threading.Event(), []

    def job() -> None:
        begun.set()
        go_on.wait(WAIT_S)
        ended.append(1)

    background = Background()
    background.run(job)
    assert begun.wait(WAIT_S)
    threading.Timer(0.05, go_on.set).start()
    background.close()
    background.run(job)
    assert ended == [1]
