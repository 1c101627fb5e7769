"""Helpers for all image tests: their marks, and the programs that run the image."""

import os
import subprocess
from collections.abc import Callable

import pytest

from scripts import containers

APPLICATIONS = "applications.json"
OPENSHIFT = 1000660000
STRANGER = (
    f"--user={OPENSHIFT}:0",
    "--passwd=false",
)  # a user ID chosen by the host, without a passwd entry

ROOT_ONLY = pytest.mark.skipif(os.getuid() != 0, reason="only root may run a container as any user")
REAL = [pytest.mark.servers, pytest.mark.timeout(600), pytest.mark.xdist_group("image"), ROOT_ONLY]


def real(test: Callable[..., None]) -> Callable[..., None]:
    """Mark a test that requires the image."""
    for mark in REAL:
        test = mark(test)
    return test


def said(*argv: str) -> str:
    done = subprocess.run(
        argv, env=containers.environment(), capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
