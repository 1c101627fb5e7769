"""One comment per pull request on each forge: created once, then edited. Other comments remain."""

from collections.abc import Iterator

import pytest
from fakes.forge_server import ForgeServer
from fakes.github_graphql import invalid
from support.forge_kinds import KINDS, place_on
from support.serving import serving

from task.errors import CredentialsError, RepositoryError, TaskError, UnreachableError
from task.forges import github
from task.forges.client import ForgeToken, Reach
from task.forges.host import PAGES
from task.forges.places import FORGES
from task.http import Limits
from task.secret import Secret

MARK = f"<!-- image-update-plan: {'ab' * 32} -->"
OTHER = f"<!-- image-update-plan: {'cd' * 32} -->"


def text(build: str, mark: str = MARK) -> str:
    return f"| `web` | {build} |\n\n{mark}\n"


class Said:
    """A pull request on a forge, and its comments."""

    def __init__(self, name: str, server: ForgeServer) -> None:
        self.name, self.server, self.place = name, server, place_on(KINDS[name], server)
        server.branches["feature"] = "c" * 40
        self.request = server.add(base="main", head="feature", title="t", body="b").number

    def put(self, body: str, mark: str = MARK, request: str = "") -> str:
        reach = Reach(
            self.place,
            ForgeToken(Secret("good-token")),
            limits=Limits(tries=1, silence=5, total=10),
        )
        api = FORGES[self.name].comments(reach)
        try:
            return api.put(request or str(self.request), mark, body)
        finally:
            api.close()

    @property
    def bodies(self) -> list[str]:
        return [note.body for note in self.server.notes]


@pytest.fixture(params=list(FORGES))
def said(request: pytest.FixtureRequest) -> Iterator[Said]:
    with serving(KINDS[request.param].fake()) as server:
        yield Said(request.param, server)


def test_a_comment_is_created_once_and_then_edited(said: Said) -> None:
    first = said.put(text("1.0"))
    assert first.startswith("http")
    assert str(said.server.notes[0].number) in first
    said.server.seen.clear()
    assert said.put(text("1.0")) == first  # the comment already has this text
    assert [one for one in said.server.seen if one.method in ("PUT", "PATCH")] == []
    assert said.put(text("1.1")) == first
    assert said.bodies == [text("1.1")]


def test_comments_of_other_people_with_our_mark_are_not_edited(said: Said) -> None:
    """A token with write access to the repository could edit these comments."""
    theirs = said.server.say(said.request, text("stolen"), author="mallory")
    said.put(text("1.0"))
    later = said.server.say(said.request, text("stolen again"), author="mallory")
    said.put(text("1.1"))
    assert said.bodies == [theirs.body, text("1.1"), later.body]
    assert (theirs.body, later.body) == (text("stolen"), text("stolen again"))


def test_our_newest_comment_is_edited(said: Said) -> None:
    old = said.server.say(said.request, text("0.1"))
    said.server.say(said.request, text("0.2"))
    said.put(text("1.0"))
    assert said.bodies == [old.body, text("1.0")]


def test_githubs_query_matches_its_schema() -> None:
    variables = {"owner": "acme", "name": "web", "number": 7, "before": None}
    assert invalid(github.COMMENTS, variables) == ""
    assert "String cannot represent" in invalid(github.COMMENTS, {**variables, "name": 7})
    assert "Cannot query field" in invalid(
        github.COMMENTS.replace("viewerDidAuthor", "isMine"), variables
    )


def test_comments_with_other_or_quoted_marks_are_not_edited(said: Said) -> None:
    said.server.say(said.request, text("0.1", OTHER))
    said.server.say(said.request, f"> {MARK}\n\nwhat is this?")
    said.server.say(said.request + 1, text("of another request"))
    said.put(text("1.0"))
    assert said.bodies[-1] == text("1.0")
    assert len(said.bodies) == 4


def test_our_comment_is_found_among_hundreds_of_other_comments(said: Said) -> None:
    said.put(text("1.0"))
    for number in range(250):
        said.server.say(said.request, f"comment {number}", author="ann")
    said.put(text("1.1"))
    assert said.bodies[0] == text("1.1")
    assert len(said.bodies) == 251


def test_the_number_of_pages_read_is_limited(said: Said) -> None:
    said.put(text("1.0"))
    for number in range(100 * PAGES):
        said.server.say(said.request, f"comment {number}", author="ann")
    said.server.seen.clear()
    said.put(text("1.1"))
    looks = [one for one in said.server.seen if one.method == "GET" or one.path.endswith("graphql")]
    assert len(looks) <= 2 * PAGES  # with fifty comments per page, on Bitbucket


def test_a_refusal_names_the_permission(said: Said) -> None:
    said.server.fail(
        said.server.refusal("forbidden"),
        "POST",
        {"gitlab": "notes", "azure": "threads"}.get(said.name, "comments"),
    )
    with pytest.raises(RepositoryError) as caught:
        said.put(text("1.0"))
    assert FORGES[said.name].comments.needs in caught.value.hint
    assert "pushed branch" not in caught.value.hint
    assert said.bodies == []


def test_a_comment_on_a_missing_pull_request_is_an_error(said: Said) -> None:
    with pytest.raises(RepositoryError) as caught:
        said.put(text("1.0"), request="4711")
    assert FORGES[said.name].comments.needs in caught.value.hint


@pytest.mark.parametrize(
    ("kind", "error"), [("unauthorized", CredentialsError), ("down", UnreachableError)]
)
def test_authentication_and_server_failures_do_not_show_the_token(
    said: Said, kind: str, error: type[TaskError]
) -> None:
    said.server.fail(said.server.refusal(kind), times=3)
    with pytest.raises(error) as caught:
        said.put(text("1.0"))
    assert "good-token" not in f"{caught.value}{caught.value.hint}"
