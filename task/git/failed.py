"""The errors of a git command."""

from __future__ import annotations


class GitFailed(Exception):
    """A git command failed. The caller knows what it was for."""

    def __init__(self, command: str, code: int, out: bytes, err: str) -> None:
        super().__init__(f"git {command} ended with {code}")
        self.command = command
        self.code = code
        self.out = out
        self.err = err


class GitEnded(GitFailed):
    """A git command was stopped because it took too long, or because it sent or needed too much."""
