"""Plays random histories with state machines, in memory or in a real repository."""

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

from support import THOROUGH
from support.git_branch import GitBranch
from support.memory import Branch

LIMIT = pytest.mark.timeout(600 * THOROUGH)


def play(machine: type[RuleBasedStateMachine], histories: int, steps: int) -> None:
    """Play random histories, each with at most this many steps. Thorough tests play different
    histories each time.
    """
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=histories * THOROUGH,
            stateful_step_count=steps,
            derandomize=THOROUGH == 1,
            deadline=None,
        ),
    )


class OnGit:
    """A mixin for state machines that use a real repository."""

    def repository(self, files: Mapping[str, str]) -> Branch:
        self.folder = TemporaryDirectory()
        return GitBranch(files, Path(self.folder.name))

    def teardown(self) -> None:
        if hasattr(self, "folder"):
            self.folder.cleanup()
