"""A fake forge: an instance of the class that the test module imports as `Server`."""

from collections.abc import Iterator
from typing import Any

import pytest
from support.serving import serving


@pytest.fixture
def server(request: pytest.FixtureRequest) -> Iterator[Any]:
    """Yield a forge that contains no requests."""
    with serving(request.module.Server()) as running:
        yield running
