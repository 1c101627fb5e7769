"""The template engine, tested with malicious templates."""

import json
import time
from pathlib import Path

import pytest

from task.errors import Malformed
from task.templates.go_template.template import parse
from task.templates.go_template.values import GoMap

DATA = json.loads((Path(__file__).parents[1] / "data" / "go_template.json").read_text())["data"]
DATA["Labels"] = GoMap(DATA["Labels"])

HOSTILE = {
    "a template that calls itself": '{{define "x"}}{{template "x"}}{{end}}{{template "x"}}',
    "deep blocks that call themselves": (
        '{{define "x"}}'
        + "{{if true}}" * 90
        + '{{template "x"}}'
        + "{{end}}" * 90
        + '{{end}}{{template "x"}}'
    ),
    "endless range": "{{range 1000000000}}{{end}}",
    "nested ranges": "{{range 999999999}}{{range 999999999}}x{{end}}{{end}}",
    "doubling": '{{$x := "aaaaaaaaaa"}}{{range 100}}{{$x = print $x $x}}{{end}}',
    "wide number": '{{printf "%999999999d" 1}}',
    "wide operand": '{{printf "%*d" 999999999 1}}',
    "precise": '{{printf "%.999999999f" 1.5}}',
    "many wide": '{{printf "' + "%1000000d" * 2000 + '" ' + "1 " * 2000 + "}}",
    "wide list": '{{printf "%900000v" .Images}}',
    "long copies": '{{$x := printf "%1000000d" 1}}{{range 99999}}{{$x = print $x}}{{end}}',
    "long comparisons": '{{$x := printf "%1000000d" 1}}{{range 99999}}{{if eq $x $x}}{{end}}{{end}}',
    "long output": '{{$x := printf "%1000000d" 1}}{{range 99999}}{{$x}}{{end}}',
    "structs printed": '{{range 30000}}{{$x := printf "%v" $}}{{end}}',
    "deep parentheses": "{{" + "(" * 100_000,
    "deep blocks": "{{if 1}}" * 30_000,
    "long else-if": "{{if 1}}a" + "{{else if 1}}b" * 15_000 + "{{end}}",
    "long template": "x" * 300_000,
    "unclosed actions": "{{" * 100_000,
    "long number": "{{" + "1_" * 100_000 + "1}}",
    "many digits": "{{" + "9" * 200_000 + "}}",
    "large exponent": "{{1e999999999}}",
    "large binary exponent": "{{0x1p999999999}}",
    "unfinished escapes": '{{"' + "\\a" * 100_000,
    "operand with zeros": '{{printf "%[0000000012]d" 1 2}}',
    "far operand": '{{printf "' + "%[99999999999999999999999]d" * 100 + '" 1}}',
}


@pytest.mark.parametrize("template", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_hostile_template_is_rejected_in_limited_time(template: str) -> None:
    began = time.process_time()
    with pytest.raises(Malformed):
        parse(template).render(DATA)
    assert time.process_time() - began < 10
