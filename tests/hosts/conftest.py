"""The container images, built once for all tests."""

import functools
from collections.abc import Callable

import pytest
from support import needs

from scripts import containers


@pytest.fixture(scope="session")
def built() -> Callable[[str], str]:
    for program in containers.PROGRAMS:
        needs(program)
    return functools.cache(containers.build)


@pytest.fixture(scope="session")
def runtime(built: Callable[[str], str]) -> str:
    return built("runtime")
