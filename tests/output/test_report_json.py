"""The exit code of a run, as derived from the report."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
from support.reports import decision

from task.deciding.job import failed
from task.errors import Exit, TaskError, Trouble, exit_of
from task.model import Problem, Verdict


def classes(of: type[TaskError] = TaskError) -> Iterator[type[TaskError]]:
    yield of
    for one in of.__subclasses__():
        yield from classes(one)


# Only error classes from task.errors occur in a run, so those defined in tests do not matter.
ERRORS = sorted(
    {one for one in classes() if one.__module__ == "task.errors"}, key=lambda one: one.__name__
)


@pytest.mark.parametrize("error", ERRORS, ids=lambda one: one.__name__)
def test_every_error_in_a_decision_sets_its_exit_code(error: type[TaskError]) -> None:
    wrong = failed(decision(), error("so"))
    assert wrong.judged == Verdict.of(error("so").trouble)
    assert exit_of([wrong.judged.trouble]) == error.exit != Exit.OK


@pytest.mark.parametrize("error", ERRORS, ids=lambda one: one.__name__)
def test_every_error_after_a_push_sets_its_exit_code(error: type[TaskError]) -> None:
    trouble = error("so").trouble
    assert exit_of([Problem(trouble)]) == error.exit
    assert exit_of([Problem(replace(trouble, severity="warning"))]) == Exit.OK


ORDER = [1, 2, 75, 4, 3, 6, 5]


@pytest.mark.parametrize(
    ("first", "later"), [(ORDER[at], ORDER[at + 1 :]) for at in range(len(ORDER) - 1)]
)
def test_the_most_urgent_exit_code_is_used(first: int, later: list[int]) -> None:
    troubles = [Trouble("x", "so", exit=Exit(code)) for code in (*reversed(later), first)]
    assert exit_of(troubles) == first
    assert exit_of(troubles[:-1], first) == first


def test_an_error_without_an_exit_code_counts_as_a_configuration_error() -> None:
    nameless = replace(decision(), judged=Verdict("error", "annotation", "so"))
    assert exit_of([nameless.judged.trouble]) == Exit.CONFIGURATION
