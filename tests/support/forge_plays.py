"""Pull request situations that can be played on any forge, with a fake server and the client under
test.

Each play is a function of a `World`, and `PLAYS` lists all plays.
"""

import json
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from hashlib import sha1

import pytest
from fakes.forge_server import ForgeServer, Reply, Request

from task.errors import (
    CredentialsError,
    Exit,
    ForgeError,
    Outpaced,
    RepositoryError,
    TaskError,
    UnreachableError,
)
from task.forges.client import ForgeAddress, ForgeToken, Reach
from task.forges.host import Host
from task.forges.proposal import described
from task.http import Limits
from task.model import Proposal, Proposed
from task.secret import Secret

HEAD = "image-update/web-0123abcd"
REPO = "https://forge.example.com/acme/deploy"
SECRET = "good-token"


@dataclass
class World:
    """A fake forge's server, its client, and the client's log."""

    server: ForgeServer
    place: ForgeAddress
    client: Callable[[Reach], Host]
    user: str = ""
    log: list[str] = field(default_factory=list)
    warned: list[str] = field(default_factory=list)

    def forge(self, secret: str = SECRET, tries: int = 1) -> Host:
        token = ForgeToken(Secret(secret), self.user)
        limits = Limits(tries=tries, silence=5, total=10)
        return self.client(
            Reach(self.place, token, log=self.log.append, limits=limits, warn=self.warned.append)
        )

    def propose(self, wanted: Proposal, secret: str = SECRET, tries: int = 1) -> Proposed:
        """Do what a run does: find the request before the push, and propose the change after the
        push.
        """
        forge = self.forge(secret, tries)
        return forge.propose(wanted, forge.find(wanted.base, wanted.head))

    def push(self, build: str, head: str = HEAD) -> Proposal:
        """Push a commit to the branch, and return the request that we want for it."""
        with self.server.lock:
            commit = sha1(build.encode(), usedforsecurity=False).hexdigest()
            self.server.branches[head] = commit
        return proposal(build, commit, head)


def proposal(build: str, commit: str, head: str = HEAD) -> Proposal:
    mark = f"{build:0>64}".encode().hex()[-64:]
    marks = f"[//]: # (image-update: {mark})\n[//]: # (image-update-commit: {commit})\n[//]: # (image-update-end: -)"
    body = f"[//]: # (image-update-begin: ours)\n\n| `web` | {build} |\n\n{marks}\n"
    return Proposal(REPO, "main", head, f"Update web to {build}", body)


def the_only(world: World) -> tuple[str, str]:
    """Return the title and the body of the only open request."""
    (pull,) = world.server.open
    return pull.title, plain(pull.body)


def plain(body: str) -> str:
    """Return a request's body without the marks that record what was set on the request."""
    return re.sub(r"^\[//\]: # \(image-update-(?:title|set): .*\n", "", body, flags=re.MULTILINE)


def text(wanted: Proposal) -> tuple[str, str]:
    return wanted.title, wanted.body


def fails(world: World, kind: type[TaskError], wanted: Proposal) -> TaskError:
    """Propose a change, and return the resulting error, which must have exactly this class and a
    hint, and must not contain a secret.
    """
    with pytest.raises(TaskError) as caught:
        world.propose(wanted)
    assert type(caught.value) is kind, repr(caught.value)
    said = f"{caught.value.message} {caught.value.hint}"
    assert world.place.host in said or world.server.url in said
    assert caught.value.hint
    assert SECRET not in said
    return caught.value


def completes(world: World, wanted: Proposal) -> Proposed:
    """Check that one more run completes the request."""
    done = world.propose(wanted)
    assert done.state == "open"
    assert the_only(world) == text(wanted)
    return done


def opened(world: World) -> None:
    wanted = world.push("1.1")
    done = world.propose(wanted)
    assert the_only(world) == text(wanted)
    (pull,) = world.server.pulls
    assert (pull.base, pull.head) == ("main", HEAD)
    assert (done.state, done.number, done.title, done.note) == (
        "open",
        str(pull.number),
        wanted.title,
        "",
    )
    assert done.head_commit == world.server.branches[HEAD]
    assert done.url.startswith("http")
    assert done.url.endswith(f"/{pull.number}")


def nothing_there_yet(world: World) -> None:
    assert world.forge().find("main", HEAD) is None


def found_open(world: World) -> None:
    done = world.propose(world.push("1.1"))
    found = world.forge().find("main", HEAD)
    assert found is not None
    assert (found.number, found.state, found.title, found.body) == (
        done.number,
        "open",
        done.title,
        done.body,
    )


def not_found_under_another_base(world: World) -> None:
    world.propose(world.push("1.1"))
    assert world.forge().find("production", HEAD) is None


def repeated_writes_nothing(world: World) -> None:
    wanted = world.push("1.1")
    first = world.propose(wanted)
    world.server.seen.clear()
    assert world.propose(wanted).number == first.number
    assert world.server.writes == []


def newer_build_updates_it(world: World) -> None:
    first = world.propose(world.push("1.1"))
    wanted = world.push("1.2")
    done = world.propose(wanted)
    assert done.number == first.number
    assert done.head_commit == world.server.branches[HEAD]
    assert the_only(world) == text(wanted)
    assert len(world.server.pulls) == 1


def a_persons_title_and_text_stay(world: World) -> None:
    world.propose(world.push("1.1"))
    pull = world.server.open[0]
    pull.title, pull.body = (
        "checked by Ann",
        f"- [x] release notes\n\n{pull.body.rstrip()}\n\nAsk Bob.",
    )
    for build in ("1.1", "1.2", "1.3"):
        wanted = world.push(build)
        world.propose(wanted)
        assert the_only(world) == (
            "checked by Ann",
            f"- [x] release notes\n\n{wanted.body.rstrip()}\n\nAsk Bob.",
        )
    pull.title, pull.body = "Update web to 1.1", "Who needs this?"
    wanted = world.push("1.4")
    world.propose(wanted)
    assert the_only(world) == ("Update web to 1.1", f"Who needs this?\n\n{wanted.body}")


def a_long_text_of_a_person_leaves_room_for_our_marks(world: World) -> None:
    wanted = world.push("1.1")
    long = replace(wanted, body=wanted.body.replace("| 1.1 |", f"| 1.1 |{' x' * 35_000}"))
    world.propose(long)
    pull = world.server.open[0]
    pull.body = f"{pull.body.replace(' x', '', 800).rstrip()}\n\n{'n' * 1500}"
    world.propose(long)
    assert plain(pull.body).endswith(
        f"\n…\n\n{wanted.body.rstrip().rpartition(chr(10) * 2)[2]}\n\n{'n' * 1500}"
    )


def what_failed_is_set_by_the_next_run(world: World) -> None:
    """Anything that a person then removes stays removed, whatever is pushed later."""
    wanted = replace(world.push("1.1"), reviewers=("ann",))
    for refusal, times in (("down", 9), ("forbidden", 1)):

        def refuse(request: Request, refusal: str = refusal, times: int = times) -> None:
            if world.server.pulls and request.method != "GET" and not world.server.faults:
                world.server.fail(world.server.refusal(refusal), times=times)

        world.server.before = refuse
        if refusal == "down":
            fails(world, UnreachableError, wanted)
        else:
            assert world.propose(wanted).note
        assert [pull.reviewers for pull in world.server.open] == [[]]
        world.server.faults.clear()
    world.server.before = lambda _request: None
    assert world.propose(wanted).note == ""
    (pull,) = world.server.open
    assert len(pull.reviewers) == 1
    pull.reviewers.clear()
    for build in ("1.1", "1.2"):
        world.propose(replace(world.push(build), reviewers=("ann",)))
        assert pull.reviewers == []


def auto_merge_that_a_person_switches_off_stays_off(world: World) -> None:
    """Bitbucket Data Center cancels auto-merge with each push, so a newer build requests it
    again.
    """
    forge, first = world.forge(), replace(world.push("1.1"), auto_merge=True)
    world.propose(first)
    (pull,) = world.server.open
    # Bitbucket Cloud has no auto-merge
    assert (pull.auto is not None) is (world.place.forge != "bitbucket")
    pull.auto = None
    world.propose(first)
    assert pull.auto is None
    found = forge.find("main", HEAD)
    forge.propose(replace(world.push("1.2"), auto_merge=True), found)
    assert (pull.auto is not None) is (world.place.forge == "bitbucket-server")


def withdrawn(world: World) -> None:
    """We closed the request ourselves, and stated the reason in it, so it does not count as
    declined.
    """
    world.propose(world.push("1.1"))
    (pull,) = world.server.open
    pull.body = f"{pull.body.rstrip()}\n\nAsk Bob."
    forge = world.forge()
    found = forge.find("main", HEAD)
    assert found is not None
    forge.withdraw(found, "main says 1.1 by now")
    forge.withdraw(found, "main says 1.1 by now")  # a second time is not an error
    assert pull.state == "closed"
    assert "so Image Update closed this request. `main says 1.1 by now`" in pull.body
    assert pull.body.rstrip().endswith("Ask Bob.")
    assert "| `web` |" not in pull.body
    now = forge.find("main", HEAD)
    assert now is not None
    assert (now.state, described(now.body)) == ("closed", "")
    assert completes(world, world.push("1.2")).number != found.number


def closed_by_a_person_while_it_is_withdrawn(world: World) -> None:
    _withdrawn_while(world, world.server.decline)


def edited_by_a_person_while_it_is_withdrawn(world: World) -> None:
    def edited(number: str) -> None:
        pull = world.server.pull(number)
        assert pull is not None
        pull.title = "checked by Ann"
        pull.version += 1

    _withdrawn_while(world, edited)


def _withdrawn_while(world: World, happens: Callable[[str], None]) -> None:
    """Withdraw a request while something else happens to it just before our first change."""
    forge = world.forge()
    made = world.propose(world.push("1.1"))
    left = [made.number]

    def before(request: Request) -> None:
        if request.method != "GET" and left:
            happens(left.pop())

    world.server.before = before
    forge.withdraw(made, "main says 1.1 by now")
    assert (left, world.server.open) == ([], [])


def what_is_proposed_meanwhile_is_not_withdrawn(world: World) -> None:
    forge = world.forge()
    world.propose(world.push("1.1"))
    found = forge.find("main", HEAD)
    assert found is not None
    newer = world.push("1.2")
    world.propose(newer)
    with pytest.raises(Outpaced):
        forge.withdraw(found, "main says 1.1 by now")
    assert the_only(world) == text(newer)


def merged(world: World) -> None:
    forge = world.forge()
    first = world.propose(world.push("1.1"))
    world.server.merge(first.number)
    found, state = forge.find("main", HEAD), forge.state(first.number)
    assert found is not None
    assert (found.number, found.state) == (first.number, "merged")
    assert (state.state, state.merge_commit) == ("merged", world.server.pulls[0].merge_commit)
    second = world.propose(world.push("1.2"))
    assert (second.state, second.number != first.number) == ("open", True)


def closed(world: World) -> None:
    forge = world.forge()
    wanted = world.push("1.1")
    first = world.propose(wanted)
    world.server.decline(first.number)
    found = forge.find("main", HEAD)
    assert found is not None
    assert (found.number, found.state) == (first.number, "closed")
    assert forge.state(first.number).state == "closed"
    assert (found.title.strip(), plain(found.body).strip()) == (
        wanted.title,
        wanted.body.strip(),
    )  # shows that this is the request that was closed
    assert completes(world, world.push("1.2")).number != first.number


def newest_of_the_closed_is_found(world: World) -> None:
    for build in ("1.1", "1.2", "1.3"):
        done = world.propose(world.push(build))
        world.server.decline(done.number)
    found = world.forge().find("main", HEAD)
    assert found is not None
    assert found.title == "Update web to 1.3"


def merged_while_it_is_updated(world: World) -> None:
    """The run decides again at the new tip, because a new request might be empty."""
    first = world.propose(world.push("1.1"))
    wanted = world.push("1.2")

    def merge(request: object) -> None:
        if (
            getattr(request, "method", "") in ("PUT", "PATCH")
            and world.server.pulls[0].state == "open"
        ):
            world.server.merge(first.number)

    world.server.before = merge
    with pytest.raises(Outpaced):
        world.propose(wanted)
    assert [pull.state for pull in world.server.pulls] == ["merged"]


def merged_before_it_was_found(world: World) -> None:
    """Another run has already proposed the same commit, and the request was merged."""
    wanted = world.push("1.1")
    forge = world.forge()
    assert forge.find(wanted.base, wanted.head) is None
    world.server.merge(world.propose(wanted).number)
    found = forge.find(wanted.base, wanted.head)
    with pytest.raises(Outpaced):
        forge.propose(wanted, found)
    assert [pull.state for pull in world.server.pulls] == ["merged"]


def closed_while_it_is_updated(world: World) -> None:
    first = world.propose(world.push("1.1"))
    wanted = world.push("1.2")

    def close(request: object) -> None:
        if (
            getattr(request, "method", "") in ("PUT", "PATCH")
            and world.server.pulls[0].state == "open"
        ):
            world.server.decline(first.number)

    world.server.before = close
    assert completes(world, wanted).number != first.number


def closed_and_its_branch_is_gone(world: World) -> None:
    wanted = world.push("1.1")
    first = world.propose(wanted)
    world.server.decline(first.number)
    del world.server.branches[HEAD]
    found = world.forge().find("main", HEAD)
    assert found is not None
    assert (found.number, found.state, plain(found.body).strip()) == (
        first.number,
        "closed",
        wanted.body.strip(),
    )


def many_others_cost_nothing(world: World) -> None:
    """The forge is queried only for the head branch's requests, not for all requests in the
    repository.
    """
    for number in range(60):
        other = world.server.add(
            base="main", head=f"other-{number}", title="other", body="x" * 1000
        )
        world.server.branches[other.head] = "c" * 40
        if number % 2:
            world.server.merge(str(other.number))
    wanted = world.push("1.1")
    world.server.sent = 0
    world.server.seen.clear()
    first = world.propose(wanted)
    assert len(world.server.seen) <= 3
    world.server.seen.clear()
    found = world.forge().find("main", HEAD)
    assert found is not None
    assert found.number == first.number
    assert len(world.server.seen) <= 2  # Azure's list does not contain the complete text
    assert world.server.sent < 100_000


def another_opens_it_first(world: World) -> None:
    wanted = world.push("1.1")

    def open_it(request: object) -> None:
        if getattr(request, "method", "") == "POST" and not world.server.pulls:
            world.server.add(base="main", head=HEAD, title="another's", body="another's")

    world.server.before = open_it
    world.propose(wanted)
    # Bitbucket Cloud changes the title of the open request
    assert the_only(world)[1] == f"another's\n\n{wanted.body}"
    assert len(world.server.pulls) == 1


def an_older_build_that_finishes_later_leaves_it(world: World) -> None:
    older, newer = world.push("1.1"), world.push("1.2")
    world.propose(newer)
    done = world.propose(older)
    assert the_only(world) == text(newer)
    assert done.head_commit == world.server.branches[HEAD]
    assert "newer" in done.note


def requests_of_forks_do_not_count(world: World) -> None:
    world.server.add(base="main", head=HEAD, title="from a fork", body="", fork=True)
    assert world.forge().find("main", HEAD) is None
    world.propose(world.push("1.1"))
    assert [pull.fork for pull in world.server.pulls] == [True, False]
    assert world.server.pulls[0].title == "from a fork"


def an_answer_about_another_branch_proposes_nothing(world: World) -> None:
    """A cache in front of the Git host might send such a response."""
    world.propose(world.push("1.1"))
    answered = world.server.answer

    def confused(request: Request) -> Reply:
        reply = answered(request)
        text = json.dumps(reply.body)
        return replace(reply, body=json.loads(text.replace(HEAD, "image-update/other")))

    world.server.answer = confused  # type: ignore[method-assign]
    assert world.forge().find("main", HEAD) is None
    wanted = world.push("1.2")
    with pytest.raises(UnreachableError):
        world.propose(wanted)
    world.server.answer = answered  # type: ignore[method-assign]
    completes(world, wanted)


def branches_of_similar_names_are_others(world: World) -> None:
    world.propose(world.push("9.9", f"{HEAD}-more"))
    wanted = world.push("1.1")
    assert world.forge().find("main", HEAD) is None
    world.propose(wanted)
    assert sorted(pull.head for pull in world.server.open) == [HEAD, f"{HEAD}-more"]


def branch_names_with_every_sign(world: World) -> None:
    head = "image-update/we\"b'#1&2%20=+;ä"
    wanted = world.push("1.1", head)
    first = world.propose(wanted)
    assert world.propose(world.push("1.2", head)).number == first.number
    assert [pull.head for pull in world.server.pulls] == [head]


def branch_deleted(world: World) -> None:
    wanted = world.push("1.1")
    commit = world.server.branches.pop(HEAD)
    with pytest.raises(RepositoryError) as caught:  # or its subclass `ForgeError`
        world.propose(wanted)
    assert caught.value.hint
    assert world.server.pulls == []
    world.server.branches[HEAD] = commit
    completes(world, wanted)


def no_permission_to_write(world: World) -> None:
    wanted = world.push("1.1")
    world.server.fail(world.server.refusal("forbidden"), "POST")
    assert fails(world, RepositoryError, wanted).exit == Exit.ACCESS
    completes(world, wanted)


def no_permission_to_update(world: World) -> None:
    world.propose(world.push("1.1"))
    wanted = world.push("1.2")
    for method in ("PUT", "PATCH"):
        world.server.fail(world.server.refusal("forbidden"), method)
    assert fails(world, RepositoryError, wanted).exit == Exit.ACCESS
    completes(world, wanted)


def wrong_token(world: World) -> None:
    wanted = world.push("1.1")
    with pytest.raises(CredentialsError) as caught:
        world.propose(wanted, "wrong-token")
    said = f"{caught.value.message} {caught.value.hint}"
    assert "wrong-token" not in said
    assert "IMAGE_UPDATE_FORGE_TOKEN" in said
    assert world.server.pulls == []
    completes(world, wanted)


def long_limit(world: World) -> None:
    wanted = world.push("1.1")
    reply = world.server.refusal("limited")
    world.server.fail(replace(reply, headers=(("Retry-After", "3600"),)))
    error = fails(world, UnreachableError, wanted)
    assert error.exit == Exit.TEMPORARY
    assert "3600" in error.hint
    completes(world, wanted)


def short_limit_is_waited_out(world: World) -> None:
    wanted = world.push("1.1")
    reply = replace(world.server.refusal("limited"), headers=(("Retry-After", "0"),))
    for method in ("GET", "POST"):
        world.server.fail(reply, method)
    completes(world, wanted)
    assert len(world.server.pulls) == 1


def not_valid(world: World) -> None:
    wanted = world.push("1.1")
    world.server.fail(world.server.refusal("invalid"), "POST")
    error = fails(world, ForgeError, wanted)
    assert error.exit == Exit.CONFIGURATION
    assert "itle" in error.message  # the forge's own wording
    completes(world, wanted)


def down(world: World) -> None:
    wanted = world.push("1.1")
    world.server.fail(world.server.refusal("down"), times=3)
    error = fails(world, UnreachableError, wanted)
    assert error.exit == Exit.TEMPORARY
    assert "<html" not in error.message
    world.server.faults.clear()
    completes(world, wanted)


def breaks_off(world: World) -> None:
    wanted = world.push("1.1")
    world.server.fail(Reply(0), times=9)
    fails(world, UnreachableError, wanted)
    world.server.faults.clear()
    completes(world, wanted)


def breaks_off_after_the_work(world: World) -> None:
    wanted = world.push("1.1")
    world.server.fail(Reply(-1), "POST")
    completes(world, wanted)
    assert len(world.server.pulls) == 1


def no_json(world: World) -> None:
    wanted = world.push("1.1")
    world.server.fail(Reply(200, "<html>a proxy's page</html>"))
    with pytest.raises((UnreachableError, CredentialsError)) as caught:
        world.propose(wanted)
    assert "<html" not in caught.value.message
    completes(world, wanted)


def strange_json(world: World) -> None:
    for body in (
        [],
        {},
        {"values": None, "value": [None]},
        [1],
        {"values": [[]], "value": {"a": 1}},
    ):
        world.server.fail(Reply(200, body))
        assert world.forge().find("main", HEAD) is None


def another_repository(world: World) -> None:
    wrong = World(
        world.server,
        replace(world.place, project=(*world.place.project[:-1], "other")),
        world.client,
    )
    wrong.user = world.user
    assert fails(wrong, RepositoryError, world.push("1.1")).exit == Exit.ACCESS


def texts_that_are_too_long_are_cut_before_the_marks(world: World) -> None:
    wanted = world.push("1.1")
    head, _, marks = wanted.body.rstrip().rpartition("\n\n")
    long = replace(wanted, title="t" * 300, body=f"{head}{'x' * 70_000}\n\n{marks}\n")
    world.propose(long)
    (pull,) = world.server.open
    assert len(pull.title) == 255
    assert plain(pull.body).rstrip().endswith(f"…\n\n{marks}")
    world.server.seen.clear()
    world.propose(long)
    assert world.server.writes == []


def nothing_secret_in_the_log(world: World) -> None:
    world.propose(world.push("1.1"))
    world.server.fail(world.server.refusal("down"), "POST")
    assert world.log
    assert not [
        line
        for line in world.log
        if SECRET in line or "?" in line or "Basic" in line or "Bearer" in line
    ]


def ten_at_once(world: World) -> None:
    builds = [f"1.{number}" for number in range(10)]
    pushed: list[Proposal] = []
    errors: list[BaseException] = []
    start = threading.Barrier(len(builds))

    def event(build: str) -> None:
        start.wait()
        with world.server.lock:
            wanted = world.push(build)
            pushed.append(wanted)
        try:
            world.propose(wanted, tries=3)
        except BaseException as error:  # noqa: BLE001 - checked below
            errors.append(error)

    threads = [threading.Thread(target=event, args=(build,)) for build in builds]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert the_only(world) == text(pushed[-1])
    assert len(world.server.pulls) == 1


PLAYS: list[Callable[[World], None]] = [
    opened,
    nothing_there_yet,
    found_open,
    not_found_under_another_base,
    repeated_writes_nothing,
    newer_build_updates_it,
    a_persons_title_and_text_stay,
    a_long_text_of_a_person_leaves_room_for_our_marks,
    what_failed_is_set_by_the_next_run,
    auto_merge_that_a_person_switches_off_stays_off,
    withdrawn,
    closed_by_a_person_while_it_is_withdrawn,
    edited_by_a_person_while_it_is_withdrawn,
    what_is_proposed_meanwhile_is_not_withdrawn,
    merged,
    closed,
    newest_of_the_closed_is_found,
    merged_while_it_is_updated,
    merged_before_it_was_found,
    closed_while_it_is_updated,
    closed_and_its_branch_is_gone,
    many_others_cost_nothing,
    another_opens_it_first,
    an_older_build_that_finishes_later_leaves_it,
    requests_of_forks_do_not_count,
    an_answer_about_another_branch_proposes_nothing,
    branches_of_similar_names_are_others,
    branch_names_with_every_sign,
    branch_deleted,
    no_permission_to_write,
    no_permission_to_update,
    wrong_token,
    long_limit,
    short_limit_is_waited_out,
    not_valid,
    down,
    breaks_off,
    breaks_off_after_the_work,
    no_json,
    strange_json,
    another_repository,
    texts_that_are_too_long_are_cut_before_the_marks,
    nothing_secret_in_the_log,
    ten_at_once,
]
