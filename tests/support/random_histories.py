"""How many random histories the state machines play, and the ones on a real repository."""

import os
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

from support.git_branch import GitBranch
from support.memory import Branch

# HISTORIES=20 plays twenty times as many, and other ones each time: once a night.
TIMES = int(os.environ.get("HISTORIES", "1"))
LIMIT = pytest.mark.timeout(600 * TIMES)


def play(machine: type[RuleBasedStateMachine], histories: int, steps: int) -> None:
    """Play random histories of at most this many steps each."""
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=histories * TIMES,
            stateful_step_count=steps,
            derandomize=TIMES == 1,
            deadline=None,
        ),
    )


class OnGit:
    """For a machine on a real repository. A branch that Git merged has the base's commits."""

    def repository(self, files: Mapping[str, str]) -> Branch:
        self.folder = TemporaryDirectory()
        return GitBranch(files, Path(self.folder.name))

    def teardown(self) -> None:
        if hasattr(self, "folder"):
            self.folder.cleanup()
