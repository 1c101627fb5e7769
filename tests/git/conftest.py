"""Fixtures for tests of repositories."""

from typing import Any

import pytest

from task.git.repository.remote import Remote


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Treat every repository as too large to be fetched together with its files."""

    def without_files(*args: Any, **options: Any) -> Remote:
        return Remote(*args, **{**options, "files": False})

    monkeypatch.setattr("task.git.repository.bare.Remote", without_files)
