"""The template engine compared with results from Go itself."""

import json
from pathlib import Path
from typing import Any

import pytest

from task.errors import Malformed
from task.templates.go_template.template import parse
from task.templates.go_template.values import FailedTemplate, GoMap

pytestmark = pytest.mark.measured

TABLE = json.loads((Path(__file__).parents[1] / "data" / "go_template.json").read_text())
DATA: dict[str, Any] = {**TABLE["data"], "Labels": GoMap(TABLE["data"]["Labels"])}


def answer(template: str) -> str | None:
    try:
        return parse(template).render(DATA)
    except Malformed:
        return None


@pytest.mark.parametrize("case", TABLE["cases"], ids=lambda case: case["template"][:60])
def test_templates_produce_the_same_text_as_in_go(case: dict[str, str]) -> None:
    assert answer(case["template"]) == case.get("text")


@pytest.mark.parametrize(
    "case",
    [case for case in TABLE["cases"] if case.get("fails") == "run"],
    ids=lambda case: case["template"][:60],
)
def test_a_template_with_a_runtime_error_can_be_parsed(case: dict[str, str]) -> None:
    late = {
        "{{9223372036854775808}}"
    }  # Go parses a number beyond the range of int, but our engine does not
    if case["template"] in late:
        with pytest.raises(Malformed):
            parse(case["template"])
        return
    template = parse(case["template"])
    with pytest.raises(FailedTemplate):
        template.render(DATA)


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{{ lower .AppName }}", 'template, line 1: function "lower" not defined'),
        ("a\n\n{{ .A | default 1 }}", 'template, line 3: function "default" not defined'),
        ("{{define x}}{{end}}", 'template, line 1: unexpected "x" in define clause'),
        ('{{if 1}}{{define "x"}}{{end}}{{end}}', "template, line 1: unexpected {{define}}"),
        ('{{block "x" .}}', "template, line 1: unexpected end of text in block clause"),
        ("u-{{.SHA256", "template, line 1: unclosed action"),
        ("{{if .A}}", "template, line 1: unexpected end of text: {{if}} has no {{end}}"),
        ("{{end}}", "template, line 1: unexpected {{end}}"),
        ("{{.A}", 'template, line 1: bad character "}"'),
        ("{{1i}}", "template, line 1: complex numbers are not supported: 1i"),
        ("{{$x}}", 'template, line 1: undefined variable "$x"'),
        ("{{(1}}", "template, line 1: unclosed left paren"),
        ("{{-\n x}}", 'template, line 2: function "x" not defined'),
        ('{{"a}}', "template, line 1: unterminated quoted string"),
        ("{{break}}", "template, line 1: {{break}} outside {{range}}"),
    ],
)
def test_syntax_errors_are_reported_with_their_line_number(template: str, message: str) -> None:
    with pytest.raises(Malformed) as raised:
        parse(template)
    assert raised.value.message.replace("'}'", '"}"') == message
    assert not isinstance(raised.value, FailedTemplate)


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{{.Nope}}", "template, line 1: can't evaluate field Nope in type struct"),
        ("a\n{{.AppName.X}}", "template, line 2: can't evaluate field X in type string"),
        ("{{index .Images 5}}", "template, line 1: error calling index: index out of range: 5"),
        (
            "{{eq 1 `1`}}",
            "template, line 1: error calling eq: incompatible types for comparison: int and string",
        ),
        ("{{.AppName 1}}", "template, line 1: can't give argument to non-function .AppName"),
        ("{{len}}", "template, line 1: wrong number of args for len: want 1, got 0"),
        ("{{range .AppName}}{{end}}", "template, line 1: range can't iterate over string"),
    ],
)
def test_runtime_errors_are_reported_with_their_line_number(template: str, message: str) -> None:
    with pytest.raises(FailedTemplate) as raised:
        parse(template).render(DATA)
    assert raised.value.message == message


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ('{{define "x"}}<{{.}}>{{end}}a{{template "x" 1}}{{template "x" `b`}}', "a<1><b>"),
        ('{{template "x"}}{{define "x"}}[{{.}}]{{end}}', "[<no value>]"),
        ('{{block "x" .AppName}}<{{.}}>{{end}}', "<app>"),
        ('{{$y := 1}}{{define "x"}}{{$y := 2}}{{$y}}{{end}}{{template "x"}}{{$y}}', "21"),
        ('{{define "x"}}{{if .}}{{template "x" false}}y{{end}}{{end}}{{template "x" true}}', "y"),
    ],
)
def test_templates_are_defined_and_called(template: str, text: str) -> None:
    assert parse(template).render({"AppName": "app"}) == text


def test_an_undefined_template_cannot_be_called() -> None:
    with pytest.raises(FailedTemplate, match='template "x" not defined'):
        parse('{{template "x"}}').render(DATA)


def test_a_template_of_the_maximum_permitted_depth_runs() -> None:
    template = "{{if true}}" * 50 + "{{print " + "(" * 50 + "1" + ")" * 50 + "}}" + "{{end}}" * 50
    assert parse(template).render({}) == "1"


@pytest.mark.slow
def test_more_steps_can_be_allowed_for_more_data() -> None:
    data = {"Images": [{"Name": "a"}] * 60_000}
    template = parse("{{range .Images}}{{.Name}}{{end}}")
    with pytest.raises(FailedTemplate):
        template.render(data)
    assert template.render(data, steps=1_000_000) == "a" * 60_000


def test_bytes_that_are_not_text_are_replaced() -> None:
    assert parse('{{slice "é" 0 1}}|{{slice "é" 0 1}}{{slice "é" 1}}').render({}) == "\ufffd|é"
