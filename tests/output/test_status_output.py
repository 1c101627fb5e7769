"""The text, table, page, and JSON output of `status`, for rows with names chosen by others."""

import io
import json
import re
from dataclasses import replace

import jsonschema
import pytest
from support.memory import story

from task.annotations.application import PREFIX, parse_application
from task.annotations.subscription import subscribe
from task.errors import Trouble
from task.image import parse_image
from task.model import Build, Hold, Problem, Reading, Verdict, Written
from task.output.console import console_of, plain_console
from task.output.image_status import ImageStatus, OpenRequest, PastBuild, Status
from task.output.status_views import as_json, json_lines, page, plain, table
from task.schemas import load

NOW = "2026-11-22T12:00:00Z"
COMMIT = "https://git.example/acme/gitops/commit/" + "c" * 40
DIGEST = "sha256:" + "a" * 64


def row(**more: object) -> ImageStatus:
    """Return an image's row with every possible fact."""
    (sub,) = subscribe(parse_application(story().app, PREFIX)).subscriptions
    image = parse_image("ghcr.io/acme/web:1.1.0")
    full = ImageStatus(
        sub,
        "main",
        "kustomization",
        Reading("ghcr.io/acme/web", "1.0.0", DIGEST, file="apps/a/kustomization.yaml"),
        live=(image,),
        newest=image,
        hold=Hold("incident", "jane", NOW, NOW),
        scope="image",
        deferred=Written("1.1.0", "", Build()),
        deferred_at=NOW,
        request=OpenRequest("https://git.example/pull/7", "7", "image-update/a", "1.1.0"),
        builds=(PastBuild("1.0.0", DIGEST, "c" * 40, NOW, "CI", "https://ci.example/7", COMMIT),),
        would=Verdict("defer", "held", "it is held"),
    )
    return replace(full, **more)  # type: ignore[arg-type]


def status(*rows: ImageStatus, problems: tuple[Problem, ...] = ()) -> Status:
    return Status(rows, problems, len(rows))


EMPTY = replace(ImageStatus(row().subscription), kind="live")


@pytest.mark.parametrize(
    "one", [row(), EMPTY, row(hold=Hold("x"), deferred_at="", scope="application")]
)
def test_the_json_matches_its_schema(one: ImageStatus) -> None:
    problems = (
        Problem(Trouble("target", "broken", "correct it"), application="argocd/a"),
        Problem(Trouble.warning("x", "y")),
    )
    found = json.loads("".join(json_lines(status(one, problems=problems))))
    jsonschema.validate(found, load("status.v1"))
    assert found["images"][0]["application"] == "argocd/a"


def test_the_json_contains_every_fact_about_an_image() -> None:
    found = json.loads("".join(json_lines(status(row()))))["images"][0]
    version = {"tag": "1.1.0", "digest": None}
    assert found["current"] == {"tag": "1.0.0", "digest": DIGEST}
    assert (found["live"], found["newest"], found["deferred"]) == (
        [version],
        version,
        {**version, "at": NOW},
    )
    assert found["hold"] == {
        "reason": "incident",
        "by": "jane",
        "at": NOW,
        "until": NOW,
        "scope": "image",
        "ends_with": None,
    }
    request = {
        "url": "https://git.example/pull/7",
        "number": 7,
        "head": "image-update/a",
        "tag": "1.1.0",
    }
    assert found["pull_request"] == request
    assert found["would"] == {"verdict": "defer", "rule": "held", "because": "it is held"}
    build = {
        "tag": "1.0.0",
        "digest": DIGEST,
        "commit": "c" * 40,
        "at": NOW,
        "by": "CI",
        "url": COMMIT,
    }
    told = {"pipeline_run": "https://ci.example/7", "proof": None, "event": None}
    assert found["builds"] == [{**build, **told}]


def test_the_text_and_the_page_contain_every_fact() -> None:
    found = status(
        row(),
        problems=(
            Problem(Trouble("target", "it is broken", "correct it"), application="argocd/a"),
        ),
    )
    rules_and_versions = (
        "newest-build",
        "1.0.0@sha256:aaaaaaaaaaaa…",
        "1.1.0",
        "cccccccccccc",
        "by CI",
    )
    sentences = ("by jane since", "1.1.0, since", "held: it is held")
    for words in (*rules_and_versions, *sentences, "1 held, 1 error"):
        assert words in plain(found)
        assert words in page(found)
    for words in ("it is broken", "correct it"):  # in text output, the log contains it
        assert words in page(found)
        assert words not in plain(found)
    assert '<a href="https://git.example/pull/7"' in page(found)
    assert '<a href="https://ci.example/7"' in page(found)
    assert f'<a href="{COMMIT}" rel="noopener noreferrer nofollow">{"c" * 12}</a>' in page(found)
    assert "none" not in plain(status(EMPTY)).lower().replace("(none)", "")


NEWEST = parse_image("ghcr.io/acme/web:1.1.0")
FREE = row(hold=None, deferred=None, request=None, newest=None, live=(), would=None)


@pytest.mark.parametrize(
    ("one", "word", "version"),
    [
        (FREE, "ok", "1.0.0"),
        (replace(FREE, read=False, in_git=Reading()), "unknown", "not read"),
        (
            replace(FREE, read=False, in_git=Reading(), newest=NEWEST, live=(NEWEST,)),
            "unknown",
            "not read",
        ),
        (replace(FREE, read=False, in_git=Reading(), kind="live"), "unknown", "not read"),
        (replace(FREE, read=False, in_git=Reading(), hold=Hold("x")), "held", "not read"),
        (replace(FREE, unanswered=True), "unknown", "1.0.0"),
        (replace(FREE, unanswered=True, live=(NEWEST,)), "differs", "1.0.0"),
        (replace(FREE, in_git=Reading()), "ok", "(none)"),
    ],
)
def test_an_image_with_unknown_state_is_not_shown_as_ok(
    one: ImageStatus, word: str, version: str
) -> None:
    found = status(one)
    for text in (plain(found), table(found, plain_console()), page(found)):
        assert word in text
        assert version in text
        assert ("newest" in text.replace("newest-build", "")) == bool(one.newest or one.unanswered)
    assert f"1 {word}" in plain(found)


@pytest.mark.parametrize(
    ("verdict", "text"),
    [
        (
            Verdict("update", "admitted", "1.1.0 satisfies ~1"),
            "updated: admitted: 1.1.0 satisfies ~1",
        ),
        (Verdict("defer", "held", "held since x"), "held since x"),
        (Verdict("defer", "held", "held: incident"), "held: incident"),
        (Verdict("defer", "held", "held; 1.1.0 is remembered"), "held; 1.1.0 is remembered"),
        (Verdict("refuse", "constraint", "no"), "skipped: constraint: no"),
        (Verdict("error", "target", "broken"), "an error: target: broken"),
    ],
)
def test_the_predicted_decision_for_a_build_is_shown(verdict: Verdict, text: str) -> None:
    shown = plain(status(replace(FREE, would=verdict)))
    assert f"      would be {text}\n" in shown
    many = plain(status(replace(FREE, would=verdict), FREE))
    assert f"  would be {text}\n" in many  # never worded as if the event had occurred


def test_an_empty_status_is_printed() -> None:
    assert plain(status()) == "0 images of 0 Applications\n"
    assert "0 Applications read" in page(status())


EVIL = "\x1b[31m<script>alert(1)</script>\u202e\n::set-output name=x::y ##vso[task]"


def test_hostile_names_are_neutralized_in_every_format() -> None:
    one = row(
        hold=Hold(EVIL, EVIL, NOW),
        request=OpenRequest(f"javascript:{EVIL}", "7", EVIL, EVIL),
        builds=(PastBuild(EVIL, "", EVIL, EVIL, EVIL, f"https://ci.example/{EVIL}"),),
        in_git=Reading(tag=EVIL, file=EVIL),
        would=Verdict("error", "target", EVIL),
    )
    found = status(one, problems=(Problem(Trouble("target", EVIL, EVIL), application="argocd/a"),))
    for text in (plain(found), table(found, plain_console())):
        assert not set(text) & {"\x1b", "\u202e"}
        assert not re.search(r"^::", text, re.MULTILINE)
    html = page(found)
    assert not set(html) & {"\x1b", "\u202e"}
    assert "<script" not in html
    assert 'href="javascript' not in html
    assert "##vso[" not in html


def test_the_table_is_no_wider_than_the_terminal() -> None:
    console = console_of(io.StringIO(), {"COLUMNS": "60", "NO_COLOR": "1"})
    long = row(
        builds=(
            PastBuild("1.0.0", DIGEST, "c" * 40, NOW, "x" * 90, "https://ci.example/" + "7" * 90),
        )
    )
    lines = table(status(long), console).splitlines()
    assert max(map(len, lines)) <= 60
    assert "x" * 30 in "".join(lines)


@pytest.mark.parametrize("rows", [0, 1, 3, 100, 201])
def test_json_written_in_parts_equals_json_written_at_once(rows: int) -> None:
    """The JSON is written in parts, because thousands of rows would take a lot of memory."""
    found = status(*(row() for _ in range(rows)))
    assert "".join(json_lines(found)) == json.dumps(as_json(found), indent=2) + "\n"


def test_a_refusal_overridden_by_another_application_is_not_shown_as_skipped() -> None:
    refused = Verdict("refuse", "constraint", "1.1.0 does not satisfy ~1.0")
    plain_row = row(hold=None, deferred=None, request=None, would=refused)
    one = replace(plain_row, overridden_by="argocd/b (web)")
    text = plain(status(one), brief=False)
    assert (
        "overridden: constraint: 1.1.0 does not satisfy ~1.0; but argocd/b (web) writes it to the "
        "same place" in " ".join(text.split())
    )
    assert "skipped" not in text
    assert "skipped" in plain(status(plain_row), brief=False)
