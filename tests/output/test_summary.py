"""A report in Markdown: the step summary, and the plan comment."""

import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.reports import commit, decision, report
from support.runner_rules import ATTACKS, dangers

from task.errors import Trouble
from task.model import (
    Commit,
    Decision,
    HeadBuildRow,
    Image,
    Problem,
    Reading,
    Report,
    Verdict,
    VerdictName,
)
from task.output.markdown import summary
from task.output.report_json import as_json

LONGEST = 60_000
ON_HOST = f"https://x.example/commit/{'a' * 40}"
PAGE = "https://git.example.com/acme/gitops/pulls/7"


def shown(of: Report, longest: int = LONGEST, **how: Any) -> str:
    return summary(as_json(of), longest, **how)


def judged(
    verdict: VerdictName, rule: str, because: str, name: str = "web", **more: Any
) -> Decision:
    return replace(decision(name=name), judged=Verdict(verdict, rule, because, **more))


def test_counts_failures_and_changes_are_shown_first_and_the_rest_is_collapsed() -> None:
    skipped = judged("refuse", "constraint", "1.1.0 is outside ~2", "a")
    failed = judged("error", "source", "no such path", "d", hint="check it")
    plan = replace(
        report(decision("unchanged", "same", "b"), skipped, decision(name="c"), failed, command="plan", code=3),
        problems=(Problem(Trouble("source", "no such path", "check it"), application="argocd/d"),
                  Problem(Trouble.warning("x", "strange key", "write another"))),
        dry=True, source="https://github.com/acme/web/commit/0123456", pipeline_run="https://ci.example.com/runs/7",
    )  # fmt: skip
    assert (
        shown(plan)
        == """\
### Image Update: 1 failed (`argocd/d`), 1 to update, 1 skipped, 1 current

`ghcr.io/acme/web:1.1.0` · `plan` · exit code 3 (for the Application's owner)

| Decision | Application | Image | Version | Why |
| --- | --- | --- | --- | --- |
| failed | `argocd/d` | `web=ghcr.io/acme/web` | `1.0.0` | `source: no such path` fix: `check it` |
| would update | `argocd/c` | `web=ghcr.io/acme/web` | `1.0.0` → `1.1.0` | `so` |

<details><summary>1 skipped, 1 current</summary>

| Decision | Application | Image | Version | Why |
| --- | --- | --- | --- | --- |
| skipped | `argocd/a` | `web=ghcr.io/acme/web` | `1.0.0` | `constraint: 1.1.0 is outside ~2` |
| current | `argocd/b` | `web=ghcr.io/acme/web` | `1.0.0` | `same: so` |

</details>

- warning: `strange key` fix: `write another`

Built from [`commit/0123456`](https://github.com/acme/web/commit/0123456) · \
Pipeline run: [`runs/7`](https://ci.example.com/runs/7) · nothing was written
"""
    )
    assert "**1 skipped, 1 current**\n\n| Decision |" in shown(plan, html=False)


def test_a_dry_run_of_a_live_update_is_reported_as_would_update() -> None:
    assert "| would update |" in shown(replace(report(decision(kind="live")), dry=True))


def test_an_untracked_image_is_reported_in_the_headline() -> None:
    assert shown(report()).startswith("### Image Update: no Application tracks it (1 read)\n")
    assert "(7 read)" in shown(replace(report(), considered=7))


def test_unchanged_rows_are_not_collapsed_if_there_are_no_other_rows() -> None:
    assert "<details>" not in shown(report(decision("refuse", "constraint")))


PROPOSED = decision(head="image-update/web")
MISSING = judged("error", "target", "no such file", hint="name another", exit=3)


@pytest.mark.parametrize(
    ("one", "word", "version", "why"),
    [
        (decision(), "updated", "`1.0.0` → `1.1.0`", "so"),
        (PROPOSED, "proposed", "`1.0.0` → `1.1.0`", "so"),
        (
            decision("unchanged", "same", current=Reading(tag="1.1.0")),
            "current",
            "`1.1.0`",
            "same: so",
        ),
        (decision("refuse", "x", current=Reading()), "skipped", "`not read`", "x: so"),
        (
            decision("error", "x", current=Reading(), kind="helm-override"),
            "failed",
            "`(none)`",
            "x: so",
        ),
        (
            judged("defer", "held", "held by jane: incident 42"),
            "held",
            "`1.0.0`",
            "by jane: incident 42",
        ),
        (MISSING, "failed", "`1.0.0`", "target: no such file"),
    ],
)
def test_a_row_shows_the_decision_the_versions_and_the_reason(
    one: Decision, word: str, version: str, why: str
) -> None:
    row = f"| {word} | `argocd/web` | `web=ghcr.io/acme/web` | {version} | `{why}` |"
    assert (
        row
        in shown(
            report(one, commits=(commit(head="image-update/web", pull_request=PAGE),))
        ).splitlines()
    )


def test_each_row_names_its_version_if_there_are_several_images() -> None:
    both = report(
        decision("refuse", "x"), images=(Image("a", "", "a", "1"), Image("b", "", "b", "2"))
    )
    assert "| `web=ghcr.io/acme/web 1.1.0` | `1.0.0` |" in shown(both)


@pytest.mark.parametrize(
    ("one", "line"),
    [
        (commit(), f"- commit `{'a' * 40}` on `main` of [`acme/gitops.git`](https://git.example.com/acme/gitops.git)"),
        (commit(url=ON_HOST), f"- commit [`commit/{'a' * 12}`]({ON_HOST}) on `main` of"),
        (commit(rollback=True), "- rollback commit `aaaa"),
        (commit(pull_request=PAGE), f"- request [`pulls/7`]({PAGE})"),
        (commit(pull_request="javascript:alert(1)"), "- request `javascript:alert(1)`"),
    ],
)  # fmt: skip
def test_commits_and_pull_requests_are_shown_as_links_to_the_git_host(
    one: Commit, line: str
) -> None:
    assert line in shown(report(decision(), commits=(replace(one, through="git"),)))


def test_only_the_pull_request_is_shown_for_a_commit_by_another_run() -> None:
    lines = shown(report(decision(), commits=(commit(through=None, pull_request=PAGE),)))
    assert "- commit" not in lines
    assert "- request" in lines


def test_waiting_updates_are_shown() -> None:
    waited = HeadBuildRow(
        "argocd/web", "web", "1.6.0", "", "image-update/web", "waits", "it is newer", PAGE
    )
    assert f"- waits: `argocd/web web 1.6.0 on {PAGE}: it is newer`" in shown(
        replace(report(), waiting=(waited,))
    )


DIFF = "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-tag: 1.0.0\n+tag: 1.1.0\n"


def planned(diff: str) -> Report:
    return replace(
        report(decision(), commits=(commit(commit=None, diff=diff),), command="plan"), dry=True
    )


def test_a_diff_is_collapsed_and_shown_only_on_request() -> None:
    where = "<details><summary>1 file on the branch</summary>\n\n`main` of `https://git.example.com/acme/gitops.git`"
    assert f"{where}\n\n```diff\n{DIFF}```\n\n</details>" in shown(planned(DIFF), diffs=True)
    assert "diff" not in shown(planned(DIFF))


@pytest.mark.parametrize("text", ["```", "````\n# heading", "~~~", *ATTACKS])
def test_no_text_in_a_diff_can_close_its_code_block(text: str) -> None:
    found = shown(planned(f"-a\n+{text}\n"), diffs=True)
    fence = re.findall(r"^(`+)diff$", found, re.MULTILINE)[0]
    assert found.count(fence) == 2
    assert dangers(found) == []


@pytest.mark.slow
def test_a_diff_that_is_too_long_is_replaced_with_a_reference_to_the_log() -> None:
    found = shown(planned("+x\n" * 400_000), diffs=True)
    assert len(found) < LONGEST
    assert "the diff is in the log" in found


def evil(text: str) -> Report:
    one = judged("error", text, text, text, hint=text)
    one = replace(one, current=Reading(tag=text))
    return replace(
        report(
            one,
            commits=(commit(head=text, repo=text, pull_request=text, url=text, through="git"),),
            code=3,
        ),
        problems=(Problem(Trouble(text, f"x{text}", text), application=text),),
    )


MARKDOWN = (
    "a|b", "`code`", "``", "[x](https://evil.example)", "![x](y)", "<script>alert(1)</script>", "<!-- x", "&lt;b&gt;",
    "*b* _i_ ~~s~~", "https://evil.example/x", "www.evil.example", "mailto:a@b.c", "$x$", "\\|", "a\nb", "a\r\n\r\n# b",
    "@all", "--> x", "/merge", "x\n/merge",
)  # fmt: skip


@pytest.mark.parametrize("text", [*MARKDOWN, *ATTACKS])
def test_names_are_shown_as_code(text: str) -> None:
    found = shown(evil(text))
    plain = re.sub(r"\]\(https?://[^ )]*\)", "", re.sub(r"`[^`\n]*`", "CODE", found))
    assert not set(plain) & set("<>@`!$*~\\"), plain
    assert "://" not in plain
    assert [line for line in found.splitlines() if line.startswith("/")] == []
    assert {line.count("|") for line in plain.splitlines() if "|" in line} == {6}
    assert dangers(found) == []


@pytest.mark.slow
@given(
    st.text(max_size=300),
    st.integers(0, 200),
    st.sampled_from([4_000, 32_768, 65_536]),
    st.booleans(),
)
def test_a_summary_never_exceeds_the_length_limit(
    text: str, many: int, longest: int, html: bool
) -> None:
    one = evil(text)
    two = replace(judged("refuse", "x", text, text), candidate=one.images[0])
    several = replace(
        one, decisions=(*one.decisions * many, *[two] * many), problems=one.problems[:1]
    )
    found = shown(several, longest, html=html)
    assert len(found) <= longest
    assert found.count("<details>") == found.count("</details>")


def test_credentials_in_urls_are_removed() -> None:
    url = "https://jane:secret@git.example.com/x"
    one = judged("error", "source", f"see {url}", hint=url)
    assert "secret" not in shown(report(one, problems=(Problem(Trouble("source", url, url)),)))


def test_the_time_in_a_forged_report_is_shown_as_code() -> None:
    forged = as_json(report(decision()))
    forged["timings"] = {"started": "now](https://evil.example) <img src=x> \u202e@acme/all"}
    told = summary(forged, LONGEST)
    assert "as of `now](https://evil.example) <img src=x>" in told
    assert "\u202e" not in told
