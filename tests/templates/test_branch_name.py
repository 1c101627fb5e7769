"""Branch names: AIU's templates and Git's rules."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from task.errors import Malformed
from task.image import parse_image_list
from task.model import Entry, Image
from task.templates.branch_name import (
    AppFields,
    branch_name,
    check_branch_template,
    objection_to_branch,
    rendered_branch,
    target_key,
)
from task.templates.change import Change

CASES = Path(__file__).parents[1] / "data" / "cases"
APP = AppFields("web", "argocd", "https://git.example.com/gitops.git", "main", "apps/web")
BROKEN = "�"


def cases(suite: str) -> list[Any]:
    return [
        pytest.param(case, id=case["id"])
        for case in json.loads((CASES / f"{suite}.json").read_text("utf-8"))["cases"]
    ]


def change_of(row: dict[str, str]) -> Change:
    alias, _, text = row["image"].rpartition("=")
    entry = parse_image_list(text)[0]
    assert isinstance(entry, Entry)
    return Change(
        entry.image, alias, row["old_tag"], row["new_tag"], row["old_digest"], row["new_digest"]
    )


def change(name: str = "acme/api", old: str = "1.0", new: str = "1.1", alias: str = "") -> Change:
    return Change(Image(name, "docker.io", name), alias, old, new)


@pytest.mark.parametrize("case", cases("write-branch-template"))
def test_templates_produce_the_same_branch_names_as_image_updater(case: dict[str, Any]) -> None:
    given = case["input"]
    app = AppFields(given.get("app_name", "web"), given.get("app_namespace", "argocd"))
    # v1 supports .AppName. Our fields are filled in every mode. A character is never split.
    expected = case.get("expect_v1", case["expect"]).removesuffix(BROKEN)
    changes = [change_of(row) for row in given["changes"]]
    if expected:
        assert rendered_branch(given["template"], changes, app) == expected
    else:
        with pytest.raises(Malformed):
            branch_name(given["template"], changes, app)


@pytest.mark.parametrize(
    "case", [case for case in cases("pull-request") if "target" in case.values[0]["input"]]
)
def test_the_target_key_is_the_same_as_in_image_updater(case: dict[str, Any]) -> None:
    given = case["input"]
    target = given["target"] or given["kustomize_base"]
    assert (
        target_key(AppFields("web", "argocd", given["repo"], given["branch"], target))
        == case["expect"]
    )


@pytest.mark.parametrize(
    ("template", "pattern"),
    [
        ("image-updater-{{.TargetKey}}-{{.SHA256}}", "image-updater-[0-9a-f]{8}-[0-9a-f]{64}"),
        ("{{.AppNamespace}}/{{.AppName}}", "argocd/web"),
        ("bump/{{(index .Images 0).Alias}}", "bump/api"),
        ("{{range $i, $e := .Images}}{{if $i}}-{{end}}{{.Name}}{{end}}", "acme/api-acme/ui"),
        ("{{len .Images}}-{{slice .SHA256 0 8}}", "2-[0-9a-f]{8}"),
        ("plain", "plain"),
    ],
)
def test_template_fields_are_filled_in(template: str, pattern: str) -> None:
    assert re.fullmatch(
        pattern, branch_name(template, [change(alias="api"), change("acme/ui")], APP)
    )


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("", "produces an empty branch name"),
        ("{{if false}}x{{end}}", "produces an empty branch name"),
        (
            "u-{{(index .Images 0).NewTag}}:x",
            "'u-1.1:x', which is not a valid branch name: it contains ':'",
        ),
        ("u {{.AppName}}", "'u web', which is not a valid branch name: it contains ' '"),
        ("{{.AppName}}/", "it begins or ends with '/'"),
        ("{{.AppName}}\n", "contains '\\n'"),
        ("-x", "begins with '-'"),
        ("{{ lower .AppName }}", 'function "lower" not defined'),
        ("{{.Nope}}", "can't evaluate field Nope"),
    ],
)
def test_a_template_that_produces_an_invalid_branch_name_is_malformed(
    template: str, message: str
) -> None:
    with pytest.raises(Malformed) as raised:
        branch_name(template, [change()], APP)
    assert message in raised.value.message


def test_long_branch_names_are_truncated_at_a_character_boundary() -> None:
    assert branch_name("é" * 200, [], APP) == "é" * 127
    assert branch_name("{{.AppName}}" + "x" * 300, [], APP) == "web" + "x" * 252


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("nginx", "nginx"),
        ("library/nginx", "library/nginx"),
        ("docker.io/library/nginx", "nginx"),
        ("index.docker.io/acme/x", "acme/x"),
        ("docker.io/acme/x", "acme/x"),
        ("ghcr.io/library/nginx", "library/nginx"),
        ("localhost/x", "x"),
        ("registry:5000/x/y", "x/y"),
        ("acme/api", "acme/api"),
    ],
)
def test_image_names_are_shortened_as_in_image_updater(written: str, name: str) -> None:
    assert Change(Image(written, "", ""), "", "1", "2").name == name


@pytest.mark.parametrize(
    ("template", "problem"),
    [
        ("{{.Image}}", "can't evaluate field Image"),
        ("{{range .Images}}{{.Tag}}{{end}}", "can't evaluate field Tag"),
        ("{{.SHA256", "unclosed action"),
        ("{{ upper .AppName }}", 'function "upper" not defined'),
        ("a b", "contains ' '"),
    ],
)
def test_an_invalid_template_is_detected_in_advance(template: str, problem: str) -> None:
    with pytest.raises(Malformed, match=problem):
        check_branch_template(template)


@pytest.mark.parametrize(
    "template", ["{{.SHA256}}", "{{(index .Images 3).Name}}", "main", "{{.TargetKey}}-{{.AppName}}"]
)
def test_templates_that_might_work_are_not_reported(template: str) -> None:
    check_branch_template(template)


def git_takes(name: str) -> bool:
    done = subprocess.run(
        ["git", "check-ref-format", "--branch", name], capture_output=True, check=False
    )
    return done.returncode == 0


NAMES = [
    *(
        "a",
        "a/b",
        "a.b",
        "a-b",
        "é",
        "a@b",
        "a{b",
        "a/@",
        "@a",
        "a@",
        "a#b",
        "a&b",
        "a%b",
        "a'b",
        'a"b',
        "a$b",
        "a;b",
    ),
    *(
        "",
        "@",
        "HEAD",
        "-a",
        "a..b",
        "a/",
        "/a",
        "a//b",
        "a.",
        ".a",
        "a/.b",
        "a.lock",
        "a.lock/b",
        "a.LOCK",
        "a/b.lock",
    ),
    *(
        "a b",
        "a~b",
        "a^b",
        "a:b",
        "a?b",
        "a*b",
        "a[b",
        "a]b",
        "a\\b",
        "a@{b",
        "a\tb",
        "a\x7fb",
        "a\nb",
        "..",
        ".",
        "a/..",
        "a/HEAD",
    ),
    *("refs/heads/a", "a/-b", "a|b", "a<b", "a,b", "(a)", "!a", "a=b", "+a"),
]


@pytest.mark.parametrize("name", NAMES)
def test_branch_name_rules_agree_with_git(name: str) -> None:
    assert (objection_to_branch(name) == "") == git_takes(name)


@given(st.text(st.sampled_from("ab./@{-~ lock\\^:é"), max_size=8))
def test_branch_name_rules_agree_with_git_for_random_names(name: str) -> None:
    assert (objection_to_branch(name) == "") == git_takes(name)
