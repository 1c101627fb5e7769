"""A forge with one repository. Test modules for other forges or servers have their own fixtures."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes.github_api import GitHub
from support.request_scenes import Scene
from support.serving import serving


@pytest.fixture
def server() -> Iterator[GitHub]:
    with serving(GitHub()) as running:
        yield running


@pytest.fixture
def scene(server: GitHub, tmp_path: Path) -> Scene:
    return Scene(tmp_path, server, group="application")
