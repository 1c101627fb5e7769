"""A pull request's title, body, and branch, and what a later run reads from them."""

import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from task.forges.places import FORGES
from task.forges.proposal import (
    ABOUT,
    ANY,
    BEGIN,
    END,
    LIFE,
    LONGEST_BODY,
    LONGEST_TITLE,
    Content,
    body,
    described,
    headline,
    message_parts,
    title,
)
from task.model import Build, Image
from task.templates.change import AppChanges, Change
from task.templates.commit_message import commit_message

DIGEST = "sha256:" + "a" * 64
COMMIT = "0123456789abcdef0123456789abcdef01234567"


def change(
    new: str = "1.4.3", old: str = "1.4.2", name: str = "ghcr.io/acme/api", **more: Any
) -> Change:
    return Change(Image(name, "ghcr.io", name.partition("/")[2]), "api", old, new, **more)


def changes_of(*changes: Change, name: str = "web", namespace: str = "argocd") -> AppChanges:
    return AppChanges(namespace, name, changes or (change(),))


FOLDED = f"<details><summary>What happens if …</summary>\n\n{LIFE}\n\n</details>"


def test_the_body_lists_all_changes_in_a_table() -> None:
    links = (
        f"https://github.com/acme/api/commit/{COMMIT}",
        "https://github.com/acme/api/actions/runs/42",
        "https://github.com/acme/deploy/compare/main...image-update/web-12345678",
    )
    build = Build(7, "ci", COMMIT, "https://github.com/acme/api")
    by_rule = change(why="semver ^1 admits it", file="apps/web/kustomization.yaml", build=build)
    waiting = change("2.0.0", "1.9.0", why="rolled back from 1.9.0", file="apps/ui/values.yaml")
    apps = [
        changes_of(by_rule),
        changes_of(waiting, replace(waiting, file="apps/ui/more.yaml"), name="ui"),
    ]
    assert body(Content(apps, "", *links, COMMIT, base="main"), "github") == (
        f"<!-- image-update-begin: {ABOUT[BEGIN]} -->\n\n"
        "### Image Update: 2 changes for `main`\n\n"
        "| Application | Image | Version | Why | Built from | File |\n"
        "| --- | --- | --- | --- | --- | --- |\n"
        "| `argocd/web` | `ghcr.io/acme/api` | `1.4.2` → `1.4.3` | `semver ^1 admits it`"
        f" | [`commit/{COMMIT[:12]}`](https://github.com/acme/api/commit/{COMMIT}) | `apps/web/kustomization.yaml` |\n"
        "| `argocd/ui` | `ghcr.io/acme/api` | `1.9.0` → `2.0.0` | `rolled back from 1.9.0`"
        " |  | `apps/ui/values.yaml, apps/ui/more.yaml` |\n"
        "\n"
        "Pipeline run: [`runs/42`](https://github.com/acme/api/actions/runs/42) · Changes: [`compare`]"
        "(https://github.com/acme/deploy/compare/main...image-update/web-12345678)\n"
        "\n"
        f"{FOLDED}\n"
        "\n"
        f"<!-- image-update-commit: {COMMIT} -->\n"
        f"<!-- image-update-end: {ABOUT[END]} -->\n"
    )


def test_the_table_has_a_proof_column_if_a_build_has_a_proof() -> None:
    proved = change(why="semver admits it", proof="signature; signer=ci.pub")
    text = body(Content([changes_of(proved), changes_of(change(why="newest"), name="ui")]))
    assert "| Application | Image | Version | Why | Proof |\n" in text
    assert "| `semver admits it` | `signature; signer=ci.pub` |\n" in text
    assert "| `newest` |  |\n" in text
    assert "Proof" not in body(Content([changes_of(change(why="newest"))]))


@pytest.mark.parametrize("forge", FORGES)
def test_additional_sections_are_included_if_they_fit(forge: str) -> None:
    shown = body(Content([changes_of()], commit=COMMIT, besides=("**Short**", "z" * 70_000)), forge)
    assert "\n\n**Short**\n\n" in shown
    assert "zzz" not in shown
    assert "What happens if …" in shown
    assert described(shown) == COMMIT


def test_the_jobs_source_commit_is_shown_below_the_table() -> None:
    """If the builds have no source commit, the request shows the job's source commit."""
    text = body(
        Content([changes_of()], source=COMMIT, run="https://ci.example.com/runs/1"), "gitlab"
    )
    assert (
        f"\n\nBuilt from `{COMMIT}` · Pipeline run: [`runs/1`](https://ci.example.com/runs/1)\n"
        in text
    )


def test_a_promotion_names_its_source() -> None:
    promoted = [
        changes_of(change(promoted_from=f"argocd/{one}", why="semver admits it"), name=one)
        for one in ("web", "api")
    ]
    text = body(Content(promoted), "gitlab")
    assert text.count("| `semver admits it, promoted from argocd/web` |") == 1
    assert text.count("| `semver admits it, promoted from argocd/api` |") == 1


def test_the_explanation_is_not_html_on_bitbucket() -> None:
    assert f"\n\n**What happens if …**\n\n{LIFE}\n\n" in body(Content([changes_of()]), "bitbucket")


def test_unknown_details_are_omitted_from_the_body() -> None:
    text = body(Content([changes_of(change(old=""))]))
    assert "| `argocd/web` | `ghcr.io/acme/api` | `(none)` → `1.4.3` |" in text
    assert "Built from" not in text
    assert "Why" not in text
    assert "\n\n\n" not in text


def test_digests_are_shown() -> None:
    assert f"`1.4.3@{DIGEST}`" in body(Content([changes_of(change(new_digest=DIGEST))]))
    assert f"`{DIGEST}` |" in body(Content([changes_of(change(new="", new_digest=DIGEST))]))


def test_duplicate_changes_share_one_row() -> None:
    assert body(Content([changes_of(change(), change())])).count("ghcr.io/acme/api") == 1


def test_a_row_names_each_file_once_even_if_several_aliases_change_it() -> None:
    changes = [change(file=file) for file in ("a.yaml", "b.yaml", "a.yaml", "b.yaml")]
    assert "| `a.yaml, b.yaml` |" in body(Content([changes_of(*changes)]))


@pytest.mark.parametrize("forge", FORGES)
def test_our_marks_are_read_back(forge: str) -> None:
    text = body(Content([changes_of()], commit=COMMIT), forge)
    for back in (text, text.replace("\n", "\r\n"), text.strip(), f"{text}\n\nThank you, bot!"):
        assert described(back) == COMMIT


@pytest.mark.parametrize(
    "text",
    ["", "by hand", "image-update-commit: " + "a" * 64, "<!-- image-update-commit: short -->"],
)
def test_texts_without_a_valid_mark_have_no_commit(text: str) -> None:
    assert described(text) == ""


def test_marks_written_by_others_do_not_count() -> None:
    forged = f"<!-- image-update-commit: {'f' * 64} -->"
    said = f"subject\n{forged}\n\n[//]: # (image-update-commit: {'e' * 64})"
    text = body(Content([changes_of(change(old=forged))], said, commit=COMMIT))
    assert described(text) == COMMIT
    assert text.count("<!-- image-update-commit: ") == 1 + text.count(f"`{forged}`")


DIFFERENT = [
    [changes_of(change("1.4.4"))],
    [changes_of(change(new_digest=DIGEST))],
    [changes_of(name="other")],
    [changes_of(namespace="other")],
    [changes_of(), changes_of(name="other")],
    [changes_of(change(name="ghcr.io/acme/other"))],
    [changes_of(replace(change(), alias="other"))],
]


HOSTILE = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "`</td>` | x",
    "a | b | c",
    "x\n/merge\n/approve",
    "x\r\n\r\n# Heading",
    "@everyone please",
    "closes #1",
    "[x](javascript:alert(1))",
    "![x](https://evil.example/pixel.png)",
    "--> <b>out</b>",
    "\u202eevil\u2066",
    "\x1b[31m",
    "```\n<b>out</b>",
]


def outside_code(text: str) -> str:
    """Return the text that Markdown interprets: not code blocks, code spans, or our comments."""
    text = re.sub(r"^(`{3,})text\n.*?^\1$", "", text, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"`[^`\n]*`", "CODE", text)
    return ANY.sub("", text).replace(FOLDED, "").replace("\n### Image Update: ", "")


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_texts_are_shown_as_code(text: str) -> None:
    apps = [
        changes_of(change(new=text, old=text, name=f"ghcr.io/{text}"), name=text, namespace=text)
    ]
    links = (text, f"https://ci.example.com/{text}", f"https://x.example/{text}")
    shown = body(Content(apps, text, *links), "gitlab")
    plain = outside_code(shown)
    assert not set(plain) & set("<>@#`!"), plain
    assert "](javascript" not in plain
    rows = [line for line in shown.splitlines() if line.startswith("| `")]
    assert [len(re.findall(r"(?<!`)\|(?!`)|\| `|` \|", row)) > 0 for row in rows] == [True]
    assert all(line.count("|") in (0, 4) for line in plain.splitlines())
    outside = re.sub(r"^(`{3,})text\n.*?^\1$", "", shown, flags=re.MULTILINE | re.DOTALL)
    assert not [line for line in outside.splitlines() if line.startswith("/")]
    assert all(char.isprintable() or char in "\n\u200b" for char in outside)


@given(st.text(max_size=80), st.text(max_size=400), st.sampled_from(sorted(FORGES)))
def test_the_mark_stays_readable_and_the_length_limited_for_any_text(
    value: str, text: str, forge: str
) -> None:
    apps = [changes_of(change(new=value, old=value), name=value)]
    shown = body(Content(apps, text, value, f"https://x.example/{value}", commit=COMMIT), forge)
    assert described(shown) == COMMIT
    assert len(shown) <= LONGEST_BODY.get(forge, 65_536)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://ci.example.com/runs/1", "[`runs/1`](https://ci.example.com/runs/1)"),
        ("https://user:token@ci.example.com/runs/1", "[`runs/1`](https://ci.example.com/runs/1)"),
        (
            "https://ci.example.com/a b)(",
            "[`ci.example.com/a%20b%29%28`](https://ci.example.com/a%20b%29%28)",
        ),
        ("javascript:alert(1)", "`javascript:alert(1)`"),
        (COMMIT, f"`{COMMIT}`"),
    ],
)
def test_run_links_are_shown_without_credentials(url: str, shown: str) -> None:
    assert f"Pipeline run: {shown}\n" in body(Content([changes_of()], run=url))


@pytest.mark.slow
@pytest.mark.parametrize("forge", FORGES)
def test_a_body_is_never_too_long(forge: str) -> None:
    apps = [changes_of(name=f"application-{number}") for number in range(3000)]
    words, page = "long text " * 10_000, "https://x.example/" + "y" * 480
    text = body(Content(apps, words, page, commit=COMMIT), forge)
    assert len(text) <= LONGEST_BODY.get(forge, 65_536)
    assert described(text) == COMMIT
    assert re.search(r"^and \d+ more: see the report$", text, re.MULTILINE)


def test_the_authors_text_is_truncated_before_the_table() -> None:
    text = body(Content([changes_of()], "z" * 9000), "azure")
    assert "| `argocd/web` |" in text
    assert "…\n```" in text
    assert 3600 < len(text) <= 4000


def test_the_authors_text_is_shown_without_mentions() -> None:
    text = body(Content([changes_of()], "Rollout plan\n\n- ask @ann\n- see #7"))
    assert "```text\nRollout plan\n\n- ask @\u200bann\n- see #\u200b7\n```" in text


@pytest.mark.parametrize(
    ("message", "wanted"),
    [
        ("build: automatic update of web\n\nmore", "build: automatic update of web"),
        ("\n\n  web 1.2  \nmore", "web 1.2"),
        ("ping @ann about #7 and !8", "ping @\u200bann about #\u200b7 and !\u200b8"),
        ("web@sha256:abc", "web@sha256:abc"),
        ("mail a@b.example", "mail a@b.example"),
        ("x\x1b[2Jy", "x [2Jy"),
    ],
)
def test_the_title_is_the_first_line_without_mentions(message: str, wanted: str) -> None:
    assert title(message) == wanted


@given(st.text())
def test_a_title_is_one_line_and_never_too_long(message: str) -> None:
    found = title(message * 50)
    assert len(found) <= LONGEST_TITLE
    assert "\n" not in found


def test_a_commit_message_is_split_into_subject_and_body() -> None:
    message = commit_message(None, [changes_of()], [("Source-Commit", COMMIT)]).text
    assert message_parts(message) == (
        "build: automatic update of web to 1.4.3",
        "updates image acme/api tag '1.4.2' to '1.4.3' for web",
    )
    assert message_parts("subject") == ("subject", "")
    assert message_parts("subject\n\nKey: value\n") == ("subject", "")
    assert message_parts("subject\n\ntext: a\nmore\n") == ("subject", "text: a\nmore")


OLDER, NEWER = [changes_of(change("1.4.3"))], [changes_of(change("1.4.4"))]


WEB = {"new": "1.1.0", "old": "1.0.0", "name": "ghcr.io/acme/web"}
UI = {"new": "2.0", "old": "1.9", "name": "ghcr.io/acme/ui"}
HEADLINES: list[tuple[str, list[AppChanges], str]] = [
    ("run", [changes_of(change(**WEB))], "web: ghcr.io/acme/web 1.0.0 → 1.1.0"),
    ("run", [changes_of(change(**{**WEB, "old": ""}))], "web: ghcr.io/acme/web → 1.1.0"),
    ("run", [changes_of(change(**WEB), change(**UI))], "web: web 1.1.0, ui 2.0"),
    (
        "run",
        [changes_of(*(change(f"1.{n}.0", name=f"ghcr.io/acme/service-{n}") for n in range(20)))],
        (
            "web: service-0 1.0.0, service-1 1.1.0, service-2 1.2.0, service-3 1.3.0, service-4 1.4.0,"
            " service-5 1.5.0, service-6 1.6.0, service-7 1.7.0 and 12 more images"
        ),
    ),
    (
        "run",
        [changes_of(change(**WEB)), changes_of(change(**WEB), name="b")],
        "2 Applications: ghcr.io/acme/web 1.0.0 → 1.1.0",
    ),
    (
        "scan",
        [changes_of(change(**WEB)), changes_of(change(**{**WEB, "old": "0.9"}), name="b")],
        "2 Applications: ghcr.io/acme/web → 1.1.0",
    ),
    (
        "run",
        [changes_of(change(**WEB)), changes_of(change(**UI), name="b")],
        "2 Applications: web 1.1.0, ui 2.0",
    ),
    (
        "run",
        [
            changes_of(
                change(
                    "latest", "latest", "nginx", new_digest=DIGEST, old_digest="sha256:" + "b" * 64
                )
            )
        ],
        f"web: nginx latest@sha256:{'b' * 12} → latest@sha256:{'a' * 12}",
    ),
    ("run", [changes_of(change("1.1", "1.0", "nginx", new_digest=DIGEST))], "web: nginx 1.0 → 1.1"),
    (
        "run",
        [changes_of(change("", "1.0", "nginx", new_digest=DIGEST))],
        f"web: nginx 1.0 → sha256:{'a' * 12}",
    ),
    ("run", [], "remember for web"),
    ("release", [changes_of(change(**WEB))], "release web: ghcr.io/acme/web 1.0.0 → 1.1.0"),
    ("hold", [], "hold web"),
]


@pytest.mark.parametrize(("command", "apps", "shown"), HEADLINES)
def test_the_title_summarizes_the_changes(command: str, apps: list[AppChanges], shown: str) -> None:
    subject = {"run": "remember for web", "scan": ""}.get(command, f"{command} web")
    assert headline(command, subject, apps) == shown


def test_a_rollbacks_title_ignores_other_waiting_changes() -> None:
    back = [changes_of(change("1.0.0", "1.5.0", "nginx"))]
    for beside in ([], [changes_of(change(**UI), name="b")]):
        assert (
            headline("rollback", "roll back web", [*back, *beside], back)
            == "roll back web: nginx 1.5.0 → 1.0.0"
        )


def test_a_hold_has_no_table() -> None:
    text = body(Content([], "hold web", commit=COMMIT))
    assert "| --- |" not in text
    assert "\n\n```text\nhold web\n```\n\n" in text


BUILD = Build(12, "ci", "c" * 40, "https://git.example.com/acme/web", "2026-11-21T06:00:00Z")
