"""Commit messages: AIU's wording, the user's templates, and trailers that Git reads back."""

import json
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from task.errors import Malformed
from task.model import Image
from task.templates.change import AppChanges, Change
from task.templates.commit_message import (
    build_trailers,
    check_template,
    commit_message,
    commit_references,
    message_text,
    trailer_lines,
    trailer_of,
)

CASES = Path(__file__).parents[1] / "data" / "cases"
DEFAULT = """build: automatic update of {{ .AppName }}

{{ range .AppChanges -}}
updates image {{ .Image }} tag '{{ .OldTag }}' to '{{ .NewTag }}'
{{ end -}}
"""
DIGEST = "sha256:" + "a" * 64


def change(
    name: str = "ghcr.io/acme/api", old: str = "1.0", new: str = "1.1", digest: str = ""
) -> Change:
    registry, _, repository = name.partition("/")
    return Change(Image(name, registry, repository), "", old, new, "", digest)


def changes_of(name: str, *changes: Change) -> AppChanges:
    return AppChanges("argocd", name, changes or (change(),))


def parsed(message: str) -> list[tuple[str, str]]:
    """Return the trailers as parsed by Git."""
    done = subprocess.run(
        ["git", "interpret-trailers", "--parse"],
        input=message.encode(),
        capture_output=True,
        check=True,
    )
    lines = done.stdout.decode().splitlines()
    return [(key, value.strip()) for key, _, value in (line.partition(":") for line in lines)]


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(c, id=c["id"])
        for c in json.loads((CASES / "commit-template.json").read_text("utf-8"))["cases"]
    ],
)
def test_templates_produce_the_same_messages_as_image_updater(case: dict[str, Any]) -> None:
    given = case["input"]
    rows = [
        Change(
            Image(name, "", ""),
            "",
            row["old_tag"],
            row["new_tag"],
            row["old_digest"],
            row["new_digest"],
        )
        for row in given["changes"]
        for name in [row["image"].rpartition("=")[2]]
    ]
    if "error" in case["expect"]:
        with pytest.raises(Malformed):
            check_template(given["template"])
    else:
        assert (
            message_text(given["template"], [changes_of(given["app_name"], *rows)]).text
            == case["expect"]["message"]
        )


def test_the_default_message_extends_image_updaters_message() -> None:
    apps = [changes_of("web", change(), change("nginx", "1", "2", DIGEST))]
    ours = message_text(None, apps).text
    aius = ours.replace(" to 1.1 and 2", "").replace("\n    for web", "").replace(" for web", "")
    assert message_text(DEFAULT, apps).text == aius.replace("2@", "")  # AIU omits the tag
    assert ours == (
        "build: automatic update of web to 1.1 and 2\n\n"
        "updates image acme/api tag '1.0' to '1.1' for web\n"
        f"updates image nginx tag '1' to '2@{DIGEST}'\n    for web\n"
    )


def test_a_change_shared_by_several_applications_is_listed_only_once() -> None:
    assert commit_message(None, [changes_of("web"), changes_of("api")]).text == (
        "build: automatic update of acme/api to 1.1 for web, api\n\n"
        "updates image acme/api tag '1.0' to '1.1' for web, api\n\n"
        "Image: ghcr.io/acme/api:1.1\nApplication: argocd/web\nApplication: argocd/api\n"
    )


@pytest.mark.parametrize(
    ("names", "subject"),
    [
        (("web",), "build: promote web to 1.1"),
        (("web", "api"), "build: promote acme/api to 1.1 for web, api"),
    ],
)
def test_the_subject_line_of_a_promotion_mentions_the_promotion(
    names: tuple[str, ...], subject: str
) -> None:
    promoted = replace(change(), promoted_from="argocd/staging")
    text = message_text(None, [changes_of(name, promoted) for name in names]).text
    assert text.split("\n")[0] == subject
    mixed = message_text(None, [changes_of("web", promoted), changes_of("api")]).text
    assert mixed.startswith("build: automatic update of acme/api to 1.1 for web, api\n")


def test_different_changes_name_their_applications() -> None:
    apps = [changes_of("web"), changes_of("api", change(old="0.9")), changes_of("shop")]
    assert message_text(None, apps).text == (
        "build: automatic update of acme/api to 1.1 for web, api, shop\n\n"
        "updates image acme/api tag '1.0' to '1.1' for web, shop\n"
        "updates image acme/api tag '0.9' to '1.1' for api\n"
    )


def test_five_hundred_applications_fit_on_a_screen() -> None:
    text = commit_message(None, [changes_of(f"application-{n:03}") for n in range(500)]).text
    subject, blank, *rest = text.split("\n")
    assert (subject, blank) == (
        "build: automatic update of acme/api to 1.1 for 500 Applications",
        "",
    )
    assert "and 400 more" in text
    assert max(map(len, rest)) <= 72
    assert len(rest) < 90
    assert ("Application-Count", "500") in parsed(text)
    assert sum(key == "Application" for key, _ in parsed(text)) == 50


def test_a_message_with_a_thousand_changes_is_truncated() -> None:
    text = commit_message(None, [changes_of(f"a{n}", change(old=str(n))) for n in range(1000)]).text
    assert "and 800 more changes" in text
    assert len(text) < 30_000


def test_a_template_has_access_to_all_applications() -> None:
    template = (
        "{{.AppName}}: {{len .AppChanges}} {{range .Applications}}"
        "{{.Namespace}}/{{.Name}}={{range .Changes}}{{.Image}}:{{.NewTag}}{{end}};{{end}}{{.Labels.team}}"
    )
    assert message_text(template, [changes_of("web"), changes_of("api")]).text == (
        "web, api: 1 argocd/web=acme/api:1.1;argocd/api=acme/api:1.1;<no value>"
    )


def test_the_labels_of_a_change_are_empty() -> None:
    template = '{{range .AppChanges}}{{.NewTag}}{{if index .Labels "a.b/c"}} of {{index .Labels "a.b/c"}}{{end}}{{end}}'
    message = message_text(template, [changes_of("web")])
    assert (message.text, message.warning) == ("1.1", "")


def test_a_failing_template_is_replaced_with_the_default_and_a_warning() -> None:
    message = commit_message("{{.Nope}}", [changes_of("web")])
    assert message.text == commit_message(None, [changes_of("web")]).text
    assert "can't evaluate field Nope" in message.warning


def test_a_template_with_a_syntax_error_is_malformed() -> None:
    with pytest.raises(Malformed, match='function "lower" not defined'):
        check_template("{{ lower .AppName }}")


@pytest.mark.parametrize("template", ["", "  \n\n", "{{if false}}x{{end}}", "\x00\n"])
def test_an_empty_message_is_replaced_with_image_updaters_default(template: str) -> None:
    assert commit_message(template, [changes_of("web")]).text.startswith(
        "Update parameters\n\nImage: "
    )


@pytest.mark.slow
def test_a_template_can_loop_over_many_changes() -> None:
    apps = [
        changes_of(f"a{n}", change(old=str(n)), change("nginx", str(n), "2")) for n in range(5000)
    ]
    assert message_text("{{range .AppChanges}}{{.Image}} {{.OldTag}}\n{{end}}", apps).warning == ""


BODIES = [
    "subject",
    "subject\n\nbody",
    "subject\n\nKey: value",
    "Key: value",
    "subject\n\nSigned-off-by: A <a@b>\nnot a trailer",
    "subject\n\n---\nafter the divider",
    "subject\n--- a/file\n+++ b/file",
    "---",
    "# ------------------------ >8 ------------------------\ncut",
    "subject\n\n# a comment\n",
    "# only a comment",
    "subject\n\nConflicts:\n\ta\n\tb",
    "subject\r\n\r\nbody\r\n",
    "subject\n\n\n\nbody\n\n\n",
    "\n\nsubject",
    "subject\n\n  indented: like a continuation\n ",
    "(cherry picked from commit abc)",
    "diff --git a/x b/x",
]
TRAILERS = (("Source-Commit", "abc"), ("Ticket", "X-1: with a colon"))
READ_BACK = [("Image", "ghcr.io/acme/api:1.1"), ("Application", "argocd/web"), *TRAILERS]


@pytest.mark.parametrize("body", BODIES)
def test_git_reads_our_trailers_after_each_kind_of_body(body: str) -> None:
    assert parsed(commit_message(body, [changes_of("web")], TRAILERS).text) == READ_BACK


@given(st.text(st.sampled_from("a:\n\r#- >8K\t\x00\x1b;")))
def test_git_reads_the_trailers_back_for_any_body(body: str) -> None:
    assert parsed(commit_message(body, [changes_of("web")], TRAILERS).text) == READ_BACK


@pytest.mark.parametrize(
    "text",
    [
        "a\nInjected: yes",
        "a\r\n\r\nInjected: yes",
        "a\x00b",
        "a\u2028Injected: yes",
        "a\x1b[31m",
        "a\ud800",
        " x ",
    ],
)
def test_hostile_values_cannot_break_out_of_their_line(text: str) -> None:
    hostile = AppChanges("argocd", text, (Change(Image(text, "", ""), text, text, text),))
    message = commit_message(None, [hostile], [("Source-Commit", text)]).text
    assert [key for key, _ in parsed(message)] == ["Image", "Application", "Source-Commit"]
    assert "\nInjected" not in message
    assert all(letter == "\n" or letter.isprintable() for letter in message)


def test_a_message_is_bounded() -> None:
    huge = "x" * 200_000
    message = commit_message(huge, [changes_of("web")], [("Note", huge)] * 3).text
    assert len(message) < 70_000
    assert parsed(message)[-1][0] == "Note"


@pytest.mark.parametrize("key", ["", "A B", "A:", "é", "A\nB", "A_B", "A.B"])
def test_a_trailer_key_that_git_cannot_read_is_malformed(key: str) -> None:
    with pytest.raises(Malformed, match="not a trailer key"):
        commit_message(None, [changes_of("web")], [(key, "x")])


def test_a_specified_image_trailer_replaces_the_image_trailers_of_the_changes() -> None:
    text = commit_message(
        None, [changes_of("web")], [("Image", f"ghcr.io/acme/api:1.1@{DIGEST}")]
    ).text
    assert [value for key, value in parsed(text) if key == "Image"] == [
        f"ghcr.io/acme/api:1.1@{DIGEST}"
    ]


def test_commit_references_use_argo_cds_trailers() -> None:
    references = commit_references(
        "ABC" + "0" * 37,
        "https://git.example.com/app",
        "A B <a@example.com>",
        "2026-01-02T03:04:05Z",
        "fix: x\n\nwhy\n\nhow\n",
    )
    read = dict(
        parsed(
            commit_message(None, [changes_of("web")], build_trailers(references=references)).text
        )
    )
    assert read["Argocd-reference-commit-sha"] == "abc" + "0" * 37
    assert read["Argocd-reference-commit-subject"] == "fix: x"
    assert json.loads(read["Argocd-reference-commit-body"]) == "why\n\nhow"
    assert read["Argocd-reference-commit-repourl"] == "https://git.example.com/app"
    assert read["Argocd-reference-commit-author"] == "A B <a@example.com>"
    assert read["Argocd-reference-commit-date"] == "2026-01-02T03:04:05Z"


@pytest.mark.parametrize("text", ["\x01é", "\U0001f680", "a\U0001f680"])
def test_a_truncated_source_message_is_still_valid_json(text: str) -> None:
    (*_, (_, body)) = commit_references("abc12", message="s\n\n" + text * 5000)
    line = trailer_lines([("Body", body)])
    assert json.loads(line.removeprefix("Body: ")).startswith(text)


def test_without_a_source_commit_there_are_no_references() -> None:
    assert build_trailers(references=commit_references("", "https://git.example.com/app")) == ()


@pytest.mark.parametrize(
    ("message", "value"),
    [
        ("Change\n\nPipeline-Run: https://ci/1\n", "https://ci/1"),
        (
            "Change\n\nImage: a\npipeline-run:   https://ci/1  \nPipeline-Run: https://ci/2\n\n",
            "https://ci/1",
        ),
        ("Change\r\n\r\nPipeline-Run: https://ci/1\r\n", "https://ci/1"),
        ("Change\n\nPipeline-Run: https://ci/1\n\nof the text above, no trailer\n", ""),
        ("Change\n\nPipeline-Runs: no\n", ""),
        ("Change\n\nPipeline-Run: a\x1b[31mb\n", "a [31mb"),
        ("", ""),
    ],
)
def test_trailers_are_read_only_from_the_trailer_block(message: str, value: str) -> None:
    assert trailer_of(message, "Pipeline-Run") == value
