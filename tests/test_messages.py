"""Messages that people once had to read twice: each now states what is wrong, where, and what to
do.
"""

import pytest
from support.memory import Story, story

from task.annotations.keys import doubt
from task.argocd.api import explained
from task.argocd.connection import Connection
from task.editors.yaml.path import locate, parse_path
from task.editors.yaml.tree import parse
from task.errors import TaskError
from task.forges.places import Known, place_of
from task.forges.tokens import Tokens
from task.git.errors import PAGE, failure
from task.git.names import base_branch_name
from task.http import Response
from task.model import Policy
from task.policy.judge import objection

REPO = "https://git.example/acme/deploy"


@pytest.mark.parametrize(
    ("tag", "constraints", "words"),
    [
        (
            "1.6.0-rc.1",
            ("^1",),
            "1.6.0-rc.1 is a pre-release, but ^1 admits only releases; to admit it, use ^1-0",
        ),
        ("1.6.0-rc.1", (">=1 <2",), "to admit it, use >=1 <2-0"),
        ("1.6.0-rc.1", ("1.5.0 || ^1.6",), "to admit it, use 1.5.0 || ^1.6-0"),
        ("1.6.0-rc.1", ("^1.6 || 1.5.0",), "to admit it, add -0 to a version, as in >=1.0-0"),
        ("2.0.0-rc.1", ("^1",), "2.0.0-rc.1 does not satisfy ^1"),
        ("2.0.0", ("^1-0",), "2.0.0 does not satisfy ^1-0"),
        (
            "1.6.0-rc.1",
            (),
            "without a constraint, only releases are admitted; to admit it, use the constraint >=0-0",
        ),
        (
            "main-42",
            (),
            "the strategy is semver (the default). For such tags, use update-strategy: newest-build, or a tag-order for",
        ),
        (
            "latest",
            (),
            "For such tags, use update-strategy: newest-build, or digest to follow this tag",
        ),
    ],
)
def test_the_reason_explains_why_the_default_strategy_refuses_a_tag(
    tag: str, constraints: tuple[str, ...], words: str
) -> None:
    found = objection(tag, Policy(constraints=constraints))
    assert found is not None
    assert found.because.endswith(words) or words in found.because


def test_the_suggested_constraint_admits_the_pre_release() -> None:
    for constraints in (("^1-0",), (">=1 <2-0",), ("1.5.0 || ^1.6-0",), (">=0-0",)):
        assert objection("1.6.0-rc.1", Policy(constraints=constraints)) is None


def held() -> Story:
    one = story()
    one.hold("load test")
    return one


def newer() -> Story:
    one = story()
    one.event("b", 2)
    one.event("a", 1)
    return one


def replayed() -> Story:
    one = story()
    one.event("a")
    one.event("b")
    one.rollback("a", hold=False)
    one.event("b")
    return one


def waiting() -> Story:
    one = held()
    one.event("a", 2)
    return one


def overtaken() -> Story:
    one = waiting()
    one.event("b", 1)
    return one


def released(one: Story) -> Story:
    one.release()
    return one


HELD = "held by jane since 2026-11-22 12:00 UTC: load test"


@pytest.mark.parametrize(
    ("one", "words"),
    [
        (held(), f"{HELD}; image-update release argocd/a ends the hold"),
        (
            waiting(),
            f"{HELD}; a is waiting: image-update release argocd/a ends the hold and writes it",
        ),
        (overtaken(), f"{HELD}; a is already waiting, and sequence 1 comes before sequence 2"),
        (released(held()), f"released: it was {HELD}; Git keeps 1.0.0"),
        (released(waiting()), f"released: it was {HELD}; a was waiting: "),
        (
            newer(),
            (
                "a newer build was already written, b: sequence 1 comes before sequence 2; "
                "to write it anyway: image-update rollback argocd/a --to a"
            ),
        ),
        (
            replayed(),
            (
                "b was written earlier and has since been replaced, so a rerun does not restore it; "
                "to write it anyway: image-update rollback argocd/a --to b"
            ),
        ),
    ],
)
def test_the_reason_explains_holds_and_superseded_builds(one: Story, words: str) -> None:
    assert one.because.startswith(words)


def tag_as_revision() -> None:
    base_branch_name("refs/tags/v1.0.0")


def commit_as_revision() -> None:
    base_branch_name("a" * 40)


def range_as_revision() -> None:
    base_branch_name("1.x ^1")


def below(text: str, path: str) -> None:
    tree = parse(text)
    locate(tree, tree.roots[0], parse_path(path))


def unsent() -> None:
    said = "fatal: could not read Username for 'https://git.example': terminal prompts disabled"
    raise failure(said, f"{REPO}@main", ["https://github.com"])


def api_token(*, root: str = "") -> None:
    place = place_of(f"{REPO}.git", [Known("gitlab", "https://git.example")])
    assert place is not None
    given = {"forge": Known("github", root)} if root else {"scope": ("https://github.com",)}
    Tokens({"IMAGE_UPDATE_FORGE_TOKEN": "s3cret"}, **given).of(place)


def login_page() -> None:
    raise failure(f"fatal: {REPO}/info/refs not valid: {PAGE}?", f"{REPO}@main")


def argo_login_page() -> None:
    page = Response(
        200, {"Content-Type": "text/html"}, b"<html>", "https://argocd.example/api/v1/applications"
    )
    raise explained(page, Connection("argocd.example"), "", "", ())


@pytest.mark.parametrize(
    ("raised", "message", "hint"),
    [
        (tag_as_revision, "the revision 'refs/tags/v1.0.0' is not a branch", "set the git-branch annotation to the branch"),
        (commit_as_revision, "is a commit, but updates can only be written to a branch", "set the git-branch annotation to the branch"),
        (range_as_revision, "'1.x ^1' is not a valid branch name", "such as git-branch: main"),
        (
            lambda: below("replicas: 1\nimage: ghcr.io/acme/web:1.0.0\n", "image.tag"),
            "line 2: image is a plain value ('ghcr.io/acme/web:1.0.0'), so it has no key tag",
            "if image holds the whole reference, set <alias>.helm.image-spec: image",
        ),
        (
            lambda: below("images:\n- name: web\n", "images.tag"),
            "line 2: images is a list, so images.tag is not in it",
            "use one of its items, such as images[0].tag",
        ),
        (lambda: below("image: {tag: x}\n", "image[0].tag"), "line 1: image is not a list", "without an index: image"),
        (
            unsent,
            f"{REPO}@main: the server requires credentials, but the configured ones were not sent: they are for https://github.com",
            "also pass --git-credentials-url https://git.example; if not, use other credentials",
        ),
        (
            api_token,
            "the API token (IMAGE_UPDATE_FORGE_TOKEN) was not sent to git.example: it is for https://github.com",
            "if this Git host is allowed to receive the token, pass --git-credentials-url https://git.example/",
        ),
        (
            lambda: api_token(root="https://github.com"),
            "was not sent to git.example: it is for https://github.com",
            "if this Git host is allowed to receive the token, pass --forge gitlab=https://git.example",
        ),
        (login_page, "the server returned a web page, not a Git repository", "open the URL in a browser: if it shows"),
        (
            argo_login_page,
            "https://argocd.example returned a web page (200), not an Argo CD API response",
            "if the server is behind a login page, pass the headers that the page requires with --argocd-header; ",
        ),
    ],
)  # fmt: skip
def test_each_error_names_the_cause_and_a_remedy(raised: object, message: str, hint: str) -> None:
    assert callable(raised)
    with pytest.raises(TaskError) as caught:
        raised()
    assert message in str(caught.value)
    assert hint in caught.value.hint
    assert "s3cret" not in str(caught.value) + caught.value.hint


def test_a_misspelt_annotation_is_named_once() -> None:
    found = doubt("web.alow-tags", "web=acme/web")
    assert found is not None
    assert (found.message, found.hint) == (
        "unknown annotation 'web.alow-tags'",
        "rename it to web.allow-tags, or remove it",
    )
