"""Programs from `tests/real/install`. Tests that need a missing program are skipped."""

import pytest
from support import ROOT

FOLDER = ROOT / ".cache" / "real"


def installed(name: str) -> str:
    """Return the path of an installed program or folder."""
    path = FOLDER / name
    if not path.exists():
        pytest.skip(f"{name} is not here; `make test-real` installs it")
    return str(path)
