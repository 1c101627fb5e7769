"""Reads each branch that Applications write to, several repositories at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from typing import TypeVar

from task.deciding.job import Ask, Job
from task.errors import TaskError
from task.landing.ports import Batch, World
from task.pipeline.match import AT_ONCE, Matched, by_branch, by_login, by_repository
from task.threads import in_threads

Result = TypeVar("Result")


def read_branches(
    matched: Matched,
    job: Job,
    world: World,
    read: Callable[[Batch], Result],
    failed: Callable[[Sequence[Ask], TaskError, str], Result],
) -> list[Result]:
    """For each branch, return the result of `read`, or the result of `failed` if reading raised an
    error.

    The last argument of `failed` is the base branch, or "" if the whole repository cannot be read.
    """

    def read_repository(asks: Sequence[Ask]) -> list[Result]:
        """Return the results for the branches of one repository. All `asks` belong to this
        repository.
        """
        sub = asks[0].subscription
        try:
            repository = world.repository(sub.repo, sub)
        except TaskError as error:
            return [failed(asks, error, "")]
        results = []
        try:
            for base, branch_asks in by_branch(repository, asks).items():
                try:
                    results.append(read(Batch(repository, base, tuple(branch_asks))))
                except TaskError as error:  # a missing branch must not hide the other branches
                    results.append(failed(branch_asks, error, base))
        except TaskError as error:  # `by_branch` could not determine the default branch
            results.append(failed(asks, error, ""))
        finally:
            repository.close()
        return results

    groups = by_login(by_repository(matched, job), world)
    results_of_groups = in_threads(read_repository, groups, AT_ONCE)
    return list(chain.from_iterable(results_of_groups))
