"""Threads finish before an error is raised, results are in the order of the items, and threads must
finish soon after a signal.
"""

import io
import threading
import time
from types import SimpleNamespace
from typing import Any, cast

import pytest

from task import processes, shutdown, threads
from task.threads import in_threads, once


@pytest.mark.parametrize("at_once", [1, 2, 100])
def test_all_work_is_done_before_the_first_error_is_reported(at_once: int) -> None:
    done: list[int] = []

    def work(number: int) -> None:
        done.append(number)
        time.sleep(0.01 if number == 3 else 0)
        if number in (3, 7):
            raise KeyError(number)

    with pytest.raises(KeyError, match="3"):
        in_threads(work, range(10), at_once)
    assert sorted(done) == list(range(10))


def test_results_are_in_the_order_of_their_items() -> None:
    def work(number: int) -> int:
        time.sleep(0.002 * (5 - number))
        return number * number

    assert in_threads(work, range(5), 5) == [0, 1, 4, 9, 16]
    assert in_threads(work, [], 5) == []


def test_a_single_item_needs_no_thread() -> None:
    assert in_threads(lambda _item: threading.current_thread(), [1], 8) == [
        threading.current_thread()
    ]


def test_threads_do_not_keep_the_process_alive() -> None:
    def daemon(_number: int) -> bool:
        time.sleep(0.05)
        return threading.current_thread().daemon

    assert in_threads(daemon, range(4), 4) == [True] * 4


def test_after_a_signal_no_work_starts_and_hanging_threads_are_abandoned(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gate, begun = threading.Event(), list[int]()
    waited: list[float] = []
    join = threading.Thread.join

    def stopped(thread: threading.Thread, timeout: float | None = None) -> None:
        if timeout is None:
            raise shutdown.Stopped  # a signal handler raises this in the main thread
        waited.append(timeout)
        join(thread, timeout)

    def work(number: int) -> None:
        begun.append(number)
        gate.wait()

    monkeypatch.setattr(threading.Thread, "join", stopped)
    with pytest.raises(shutdown.Stopped):
        in_threads(work, range(9), 2)
    gate.set()
    assert (len(waited), len(begun)) == (2, 2)
    assert sum(waited) < threads._TIDYING + 0.1  # the limit applies to all threads together


def test_threads_have_less_than_two_seconds_to_finish_after_a_signal() -> None:
    """Git is killed early enough for the threads to have time to clean up."""
    assert processes._PATIENCE + processes._SLICE < threads._TIDYING < 2


def test_a_value_is_created_only_once_for_many_threads() -> None:
    made: list[object] = []

    def make() -> object:
        time.sleep(0.01)
        made.append(object())
        return made[-1]

    value = once(make)
    assert set(in_threads(lambda _: value(), range(8), 8)) == {made[0]}
    assert len(made) == 1


def test_a_slow_value_does_not_block_other_values() -> None:
    """Previously, a single lock for all values was held during a login, so all other clients had to
    wait.
    """
    gate, asking = threading.Event(), threading.Event()

    def ask() -> str:
        asking.set()
        assert gate.wait(10)
        return "answer"

    slow, known = once(ask), once(lambda: "known")
    assert known() == "known"

    def work(number: int) -> str:
        if number == 0:
            return slow()
        assert asking.wait(10)
        found = known() + once(lambda: " new")()
        gate.set()
        return found

    assert in_threads(work, range(2), 2) == ["answer", "known new"]


def test_creating_a_value_is_retried_after_a_failure() -> None:
    failures = [KeyError("x")]

    def make() -> str:
        if failures:
            raise failures.pop()
        return "made"

    value = once(make)
    with pytest.raises(KeyError):
        value()
    assert (value(), value()) == ("made", "made")


def test_only_one_program_is_started_at_a_time() -> None:
    """`sh` turns off garbage collection for the whole process while it forks."""
    starting = threading.Lock()

    def program(*_args: str, **_how: object) -> SimpleNamespace:
        assert starting.acquire(blocking=False)
        time.sleep(0.01)
        starting.release()
        return SimpleNamespace(wait=lambda: None)

    def work(number: int) -> None:
        if number % 2:
            processes.run_login_program(cast(Any, program), [], {}, 60)
        else:
            processes.start(cast(Any, program), [], {}, (io.BytesIO(),) * 3)

    in_threads(work, range(20), 8)
