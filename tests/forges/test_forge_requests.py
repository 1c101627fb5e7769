"""The number of requests to a forge per pull request. The rest of a run's fourteen are to Git.

For a new pull request, a run looks for an existing one before the push, and then opens it. For a
newer build, it looks for the request, reads it, writes the new text, and reads the branch to see
if a still newer build was pushed.
"""

from dataclasses import replace
from typing import Any

import pytest
from support.forge_kinds import KINDS, place_on
from support.forge_plays import World
from support.serving import serving

from task.forges.places import FORGES

# Forge, requests for a new pull request, and for a newer build; both again with a label, a
# reviewer, an assignee, and auto-merge. With these, a new pull request sets everything, reads the
# branch again, and marks in the text what is set. A newer build sets at most auto-merge again.
ROWS: list[tuple[str, int, int, int, int]] = [
    ("github", 2, 4, 8, 4),
    ("gitlab", 2, 4, 9, 7),  # finds out whether the project uses merge trains
    ("gitea", 2, 4, 8, 6),
    (
        "bitbucket",
        3,
        4,
        7,
        4,
    ),  # reads the branch first, because Bitbucket allows a second request
    ("bitbucket-server", 2, 4, 7, 7),
    ("azure", 2, 5, 9, 5),  # its list contains truncated texts
]
MOST, MOST_WHOLE = 5, 9
EXTRAS: dict[str, Any] = {
    "labels": ("deploy",),
    "reviewers": ("ann",),
    "assignees": ("bob",),
    "auto_merge": True,
}


@pytest.mark.parametrize(("name", "first", "newer", "first_whole", "newer_whole"), ROWS)
def test_each_forge_requires_a_fixed_number_of_requests(
    name: str, first: int, newer: int, first_whole: int, newer_whole: int
) -> None:
    for more, wanted in (({}, (first, newer)), (EXTRAS, (first_whole, newer_whole))):
        kind = KINDS[name]
        with serving(kind.fake()) as server:
            world = World(server, place_on(kind, server), FORGES[name].client)
            seen = []
            for build in ("1.1", "1.2"):
                forge, proposal = world.forge(), replace(world.push(build), **more)
                server.seen.clear()
                forge.propose(proposal, forge.find(proposal.base, proposal.head))
                seen.append([f"{one.method} {one.target}" for one in server.seen])
            assert server.connections <= 2 * (
                2 if name == "azure" else 1
            )  # Azure's user API is on another host
        assert tuple(map(len, seen)) == wanted, "\n".join(map(str, seen))
        assert max(wanted) <= (MOST_WHOLE if more else MOST)


def test_every_forge_has_a_row_in_the_table() -> None:
    assert {row[0] for row in ROWS} == set(KINDS)
