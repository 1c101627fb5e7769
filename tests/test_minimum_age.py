"""`minimumAge` and `--minimum-age`: `scan` uses the image's date, and `promote` uses the history of
the source.
"""

import subprocess
from collections.abc import Collection, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from fakes.oci_images import image
from fakes.registry_api import registry_api
from support import bare_repo, git, image_update
from support.runs import KUSTOMIZATION, application, manifest, target

from task.annotations.application import parse_application
from task.annotations.subscription import subscribe
from task.commands.scan import chosen
from task.deciding.job import Terms
from task.model import Answer, Question
from task.pipeline.match import asks_for_all

NOW, DAY = "2026-11-22T12:00:00Z", 86_400


@pytest.mark.parametrize(
    ("dates", "tag", "rule", "until"),
    [
        (
            {"1.2.0": "2026-11-22T00:00:00Z", "1.1.0": "2026-11-01T00:00:00Z"},
            "1.1.0",
            "",
            "2026-11-25T00:00:00Z",
        ),
        ({"1.2.0": "2026-11-19T12:00:00Z", "1.1.0": "2026-11-01T00:00:00Z"}, "1.2.0", "", ""),
        ({"1.2.0": "", "1.1.0": "2026-11-01T00:00:00Z"}, "1.1.0", "", ""),
        ({"1.2.0": "2026-11-22T00:00:00Z"}, "1.2.0", "too-young", "2026-11-25T00:00:00Z"),
        ({"1.2.0": ""}, "1.2.0", "too-young", ""),
        (
            {"1.2.0": "", "1.1.0": "2026-11-22T00:00:00Z"},
            "1.1.0",
            "too-young",
            "2026-11-25T00:00:00Z",
        ),
        (
            {"1.2.0": "", "1.1.0": "2026-11-22T00:00:00Z", "1.0.0": "2026-11-01T00:00:00Z"},
            "1.0.0",
            "",
            "2026-11-25T00:00:00Z",
        ),
        ({"1.2.0": "", "1.1.0": ""}, "1.2.0", "too-young", ""),
        ({"latest": "2026-11-01T00:00:00Z"}, "latest", "not-a-version", ""),
    ],
)
def test_a_scan_chooses_the_newest_tag_that_is_old_enough(
    dates: dict[str, str], tag: str, rule: str, until: str
) -> None:
    def registry(questions: Collection[Question]) -> Mapping[Question, Answer]:
        return {
            one: Answer(tags=tuple(dates), created=dates.get(one.image.tag, ""))
            for one in questions
        }

    one = subscribe(parse_application(application("a", "https://git.example/x")))
    found, young = chosen(asks_for_all([one]), Terms(minimum_age=3 * DAY, now=NOW), registry)
    image = found.asks[0].candidates[0] if found.asks else found.decisions[0].candidate
    assert (image.tag, found.decisions[0].rule if found.decisions else "") == (tag, rule)
    assert [text.replace(".000Z", "Z") for text in young.values() if text] == (
        [until] if until else []
    )


def committed(repo: Path, tag: str, when: str) -> None:
    """Commit this tag on top of the branch, with this commit time."""
    text = KUSTOMIZATION.replace("1.0.0", tag)
    path = target("a")
    stream = (
        f"commit refs/heads/main\ncommitter A <a@example.com> {when}\ndata 1\nx\nfrom refs/heads/main^0\n"
        f"M 644 inline {path}\ndata {len(text)}\n{text}\n"
    )
    command = ["git", "-C", str(repo), "fast-import", "--quiet", "--date-format=rfc2822"]
    subprocess.run(command, input=stream.encode(), check=True)


OLD, LATER = "Sun, 1 Nov 2020 12:00:00 +0100", "Mon, 2 Nov 2020 12:00:00 +0100"
FUTURE = "Mon, 2 Nov 2099 12:00:00 +0100"


@pytest.mark.parametrize(
    ("history", "config", "more", "rule"),
    [
        ([("1.1.0", OLD)], "", ("--minimum-age", "3d"), "admitted"),
        ([("1.1.0", OLD)], "minimumAge: 3d\n", (), "admitted"),
        ([("1.1.0", FUTURE)], "", (), "admitted"),
        ([("1.1.0", FUTURE)], "", ("--minimum-age", "3d"), "too-young"),
        ([("1.1.0", FUTURE)], "minimumAge: 3d\n", (), "too-young"),
        (
            [("1.1.0", FUTURE)],
            "rules:\n- match: {applications: [b]}\n  minimumAge: 3d\n",
            (),
            "too-young",
        ),
        (
            [("1.1.0", FUTURE)],
            "rules:\n- match: {applications: [a]}\n  minimumAge: 3d\n",
            (),
            "admitted",
        ),
        ([("1.2.0", OLD), ("1.1.0", FUTURE)], "", ("--minimum-age", "3d"), "too-young"),
        (
            [("1.1.0", OLD), ("1.2.0", LATER), ("1.1.0", FUTURE)],
            "",
            ("--minimum-age", "3d"),
            "too-young",
        ),  # the source was reset to 1.1.0
    ],
)
def test_a_promotion_waits_until_the_source_has_had_the_version_long_enough(
    tmp_path: Path, history: list[tuple[str, str]], config: str, more: tuple[str, ...], rule: str
) -> None:
    files = {target("a"): KUSTOMIZATION, target("b"): KUSTOMIZATION}
    source = bare_repo(tmp_path, files, name="source.git")
    given = {".image-update/config": f"version: 1\n{config}"} if config else {}
    to = bare_repo(tmp_path, {**files, **given}, name="target.git")
    for tag, when in history:
        committed(source, tag, when)
    apps = manifest(tmp_path, application("a", source), application("b", to))
    given_words = (
        "--from",
        "a",
        "--to",
        "b",
        "--applications",
        str(apps),
        "--allow-protocol",
        "file",
    )
    result = image_update("promote", *given_words, "--output", "json", *more)
    (decision,) = result.json["decisions"]
    assert (result.code, decision["rule"]) == (0, rule), result.stderr
    if rule == "too-young":
        assert "2099-11-05 11:00 UTC" in decision["because"]
        assert git(to, "rev-list", "--count", "main") == "1"


@pytest.mark.parametrize(
    ("config", "more"), [("minimumAge: 3d\n", ()), ("", ("--minimum-age", "3d"))]
)
def test_a_scan_skips_tags_that_are_too_young_and_status_shows_the_date(
    tmp_path: Path, config: str, more: tuple[str, ...]
) -> None:
    now = datetime.now(UTC).replace(microsecond=0)
    with registry_api() as server:
        for tag, days in (("build-9", 30), ("build-10", 20), ("build-100", 1)):
            created = (now - timedelta(days=days)).isoformat().replace("+00:00", "Z")
            server.put("acme/web", tag, image(created=created, seed=tag))
        named = f"{server.name}/acme/web"
        text = KUSTOMIZATION.replace("ghcr.io/acme/web", named).replace("1.0.0", "build-9")
        files = {
            target("a"): text,
            ".image-update/config": f"version: 1\ntagOrder: numeric\n{config}",
        }
        repo = bare_repo(tmp_path, files)
        app = application("a", repo, image_list=f"web={named}", update_strategy="alphabetical")
        given = (
            "--applications",
            manifest(tmp_path, app),
            "--allow-protocol",
            "file",
            "--output",
            "json",
        )
        asked = ("--registry-check", "auto", *given)
        shown = image_update("status", "--newest", *asked).json["images"][0]
        done = image_update("scan", *asked, *more)
    assert done.json["images"][0]["tag"] == "build-10", done.stderr
    assert "newTag: build-10" in git(repo, "show", f"main:{target('a')}")
    until = (now + timedelta(days=2)).strftime("%Y-%m-%dT%H:%M:%S")
    newest = "build-10" if config else "build-100"
    assert (shown["newest"]["tag"], (shown["too_young_until"] or "")[:19]) == (
        newest,
        until if config else "",
    )


@pytest.mark.parametrize("text", ["3", "3 days", "0d", "900d"])
def test_an_invalid_duration_is_a_usage_error(tmp_path: Path, text: str) -> None:
    apps = manifest(tmp_path, application("a", "https://git.example/x"))
    result = image_update(
        "scan", "--applications", str(apps), "--minimum-age", text, "--registry-check", "auto"
    )
    assert (result.code, "--minimum-age" in result.stderr) == (2, True)
