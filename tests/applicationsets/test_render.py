"""ApplicationSets → Applications: unrecorded cases, server-based generators, hostile input."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from task.applicationsets import go_yaml
from task.applicationsets.fill import Budget
from task.applicationsets.generators import NamedCluster
from task.applicationsets.rendered_set import PARAMS, REFUSED, TEMPLATE, Rendered, render
from task.errors import Malformed

UNIQUE = "error getting param sets by merge key: the parameters from a generator were not unique by the given mergeKeys"


class Files:
    """The same files at every revision of every repository. Each request is recorded."""

    def __init__(self, *paths: str, **texts: str) -> None:
        self.files = {**dict.fromkeys(paths, ""), **texts}
        self.asked: list[tuple[str, str]] = []

    def paths(self, repo: str, revision: str) -> Sequence[str]:
        self.asked.append((repo, revision))
        return list(self.files)

    def texts(self, _repo: str, _revision: str, paths: Sequence[str]) -> Mapping[str, str]:
        return {path: self.files[path] for path in paths}


def made(
    generators: str,
    name: str = "{{.name}}",
    files: Files | None = None,
    *,
    go: bool = True,
    clusters: Sequence[NamedCluster] | None = None,
    budget: Budget | None = None,
    more: str = "",
) -> Rendered:
    text = f"""
kind: ApplicationSet
metadata: {{name: fleet, namespace: team}}
spec:
  goTemplate: {str(go).lower()}
  generators: {generators}
  template:
    metadata: {{name: '{name}'}}
    spec: {{project: shop}}
{more}"""
    return render(go_yaml.load(text), files or Files(), budget or Budget(), clusters=clusters)


def names(result: Rendered) -> list[str]:
    assert not result.troubles
    return [app["metadata"]["name"] for app in result.applications]


def test_an_application_inherits_namespace_and_owner_from_its_set() -> None:
    (app,) = made("[{list: {elements: [{name: web}]}}]").applications
    assert app["metadata"] == {
        "name": "web",
        "namespace": "team",
        "ownerReferences": [{"kind": "ApplicationSet", "name": "fleet"}],
    }


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("{{.size | int | add 1}}", "8"),
        ("{{int `7.00`}} {{int `1.5`}} {{int `010`}} {{int `-007`}} {{int `08`}}", "7 0 8 -7 0"),
        (
            "{{int `0x1F`}} {{int `0b11`}} {{int `1_000`}} {{int ` 7`}} {{int .list}}",
            "31 3 1000 0 0",
        ),
        (
            "{{int64 `9223372036854775807`}} {{int64 `9223372036854775808`}}",
            "9223372036854775807 0",
        ),
        ("{{int 1e19}} {{max `20251129123456789012345` 1}}", "-9223372036854775808 1"),
        (
            "{{div -9223372036854775808 -1}} {{mod -9223372036854775808 -1}}",
            "-9223372036854775808 0",
        ),
        ("{{index .list 1}}-{{last .list}}-{{len .list}}", "b-c-3"),
        ("{{range $k, $v := .map}}{{$k}}{{$v}}{{end}}", "x1z2"),
        ("{{.list | join `-`}}", "a-b-c"),
        ("{{(split `.` `a.b`)._1}}", "b"),
        ("{{$d := dict `a` 1}}{{$_ := set $d `b` 2}}{{keys $d | join `.`}}", "a.b"),
        ("{{merge (dict `a` 1) (dict `a` 2 `b` 3) | toJson | b64enc | lower | trunc 4}}", "eyjh"),
        ("{{mergeOverwrite (dict `a` 1) (dict `a` 2) | toJson | regexFind `[0-9]`}}", "2"),
        ("{{without .list `a` | join ``}}{{has `a` .list}}", "bctrue"),
        ("{{pick .map `x` | keys | first}}{{omit .map `x` | keys | first}}", "xz"),
        ("{{list 3 1 2 | sortAlpha | join ``}}{{uniq (list 1 1 2) | join ``}}", "12312"),
        ("{{div 7 2}}{{mod 7 2}}{{max 1 3 2}}{{min 2 1}}{{mul 2 3}}{{sub 5 3}}", "313162"),
        ("{{round 1.25 1}}{{floor 1.9}}{{ceil 1.1}}", "1.312"),
        ("{{untilStep 0 6 2 | join ``}}{{seq 1 3 | nospace}}", "024123"),
        ("{{regexReplaceAll `(a)(.)` `axay` `$2${1}-`}}", "xa-ya-"),
        # as in Go 1.26: no empty match directly after another match, and no parts if the limit is 0
        ("{{regexFindAll `a*` `baac` -1 | toJson}}", '["","aa",""]'),
        ("{{regexReplaceAll `a*` `baac` `-`}}", "-b-c-"),
        ("{{regexSplit `a*` `baac` -1 | toJson}}", '["b","c"]'),
        ("{{regexSplit `x*` `abc` -1 | toJson}}", '["a","b","c"]'),
        ("{{regexSplit `-` `a-b` 0 | toJson}}", "[]"),
        (
            "{{regexReplaceAllLiteral `x` `axb` `1`}}{{regexSplit `-` `a-b-c` 2 | join `+` | replace `+` `.`}}",
            "a1ba.b-c",
        ),
        (
            "{{repeat 3 `ab`}}{{trimAll `-` `-x-`}}{{abbrev 5 `abcdefgh` | trimSuffix `...`}}",
            "abababxab",
        ),
        ('{{fromJson `{"a": [1]}` | toJson | sha256sum | trunc 8}}', "ff5464c3"),
        ("{{semverCompare `^1.2` `1.3.0`}}{{(semver `1.2.3`).Major}}", "true1"),
        ("{{ternary `a` `b` false}}{{coalesce `` 0 `c`}}{{empty .map}}", "bcfalse"),
        ("{{base `a/b`}}{{dir `a/b`}}{{ext `x.yaml`}}{{clean `a//b/..`}}", "ba.yamla"),
        ("{{slice .list 1 2 | first}}{{chunk 2 .list | len}}{{reverse .list | first}}", "b2c"),
        ("{{typeOf .size}}{{kindOf .list}}{{kindIs `map` .map}}", "float64slicetrue"),
        ("{{normalize `A/B_c`}}", "a-b-c"),
        ("{{(splitn `.` 2 `a.b.c`)._1}}{{addf 1.5 2}}{{divf 3 2}}{{osBase `/a/b`}}", "b.c3.51.5b"),
        ("{{slugify 8 `hello big world`}}{{slugify 8 false `hello big world`}}", "hellohello-bi"),
        # The output of sprig 3.3 for a missing map.
        (
            "{{hasKey .no `a`}}{{get .no `a`}}{{keys .no}}{{values .no}}{{pick .no `a`}}",
            "false[][]map[]",
        ),
        (
            "{{omit .no `a`}}{{pluck `a` .no .map}}{{merge .no .map}}{{merge (dict `y` 1) .no}}",
            "map[][]map[x:1 z:2]map[y:1]",
        ),
        (
            "{{unset .no `a`}}{{sortAlpha .no}}{{sortAlpha (list 2 nil 1)}}{{toStrings .no}}",
            "map[][<nil>][1 2][]",
        ),
        (
            "{{urlParse `HTTPS://u:p%40@h:80/a%20b?q=1#f`}}{{urlParse `mailto:a@b`}}",
            (
                "map[fragment:f host:h:80 hostname:h opaque: path:/a b query:q=1 scheme:https userinfo:u:p%40]"
                "map[fragment: host: hostname: opaque:a@b path: query: scheme:mailto userinfo:]"
            ),
        ),
        (
            "{{urlJoin (urlParse `https://[fe80::1%25en0]:1/a!`)}} {{urlJoin (dict `path` `a:b`)}}",
            ("https://[fe80::1%25en0]:1/a%21 ./a:b"),
        ),
        (
            "{{urlJoin (dict `host` `h` `path` `p` `userinfo` `u` `query` `q`)}} {{urlJoin .no}}",
            "//u@h/p?q ",
        ),
        (
            "{{wrap 5 `aa bb  longest cc` | toJson}}{{wrapWith 4 `+` `aa longest`}}",
            '"aa bb\\nlongest\\ncc"aa+long+est',
        ),
        (
            "{{abbrevboth 5 10 `1234 5678 9123`}}{{abbrevboth 5 6 `1234567`}}{{abbrev 5 `üüü`}}",
            "...5678...1234567ü...",
        ),
        (
            "{{duration `95`}} {{duration (mul 60 61)}} {{duration `-3600`}} {{duration `x`}}",
            "1m35s 1h1m0s -1h0m0s 0s",
        ),
        ("{{toDecimal `0777`}} {{toDecimal 7.0}} {{toDecimal `8`}} {{toDecimal .no}}", "511 7 0 0"),
        (
            "{{toJson (list 1e-7 0.00001 1.5 1e21 2.0)}}{{toPrettyJson (dict `a` (list) `b` (list 1e-9)) | toJson}}",
            '[1e-7,0.00001,1.5,1e+21,2]"{\\n  \\"a\\": [],\\n  \\"b\\": [\\n    1e-9\\n  ]\\n}"',
        ),
        ("{{toJson 123456789012345680000.0}}{{toJson (float64 `inf`)}}", "123456789012345680000"),
    ],
)
def test_sprig_functions_give_the_same_results(template: str, text: str) -> None:
    element = "{size: 7, list: [a, b, c], map: {x: 1, z: 2}}"
    (app,) = made(
        f"[{{list: {{elements: [{element}]}}}}]",
        "x",
        more=f"  templatePatch: |\n    spec: {{text: '{template}'}}",
    ).applications
    assert app["spec"]["text"] == text


@pytest.mark.parametrize(
    ("template", "message"),
    [
        (
            '{{env "HOME"}}',
            'failed to parse template {{env "HOME"}}: template: base:1: function "env" not defined',
        ),
        (
            "{{now}}",
            'failed to parse template {{now}}: template: base:1: function "now" is not available here',
        ),
        (
            "{{fail `no`}}",
            "failed to execute go template {{fail `no`}}: template: base:1: error calling fail: no",
        ),
        (
            "{{.nothing.x}}",
            'executing "base" at <.nothing.x>: nil pointer evaluating interface {}.x',
        ),
        (
            "a\n{{/* b\n */}}{{`c\nd`}} {{.nothing.x}}",
            'template: base:4:7: executing "base" at <.nothing.x>: nil pointer evaluating interface {}.x',
        ),
        ("{{trunc `x` .name}}", "expected int; got string"),
        ("{{keys (split `.` .name)}}", "expected map[string]interface {}; got map[string]string"),
        (
            "{{dig `x` `y` .nothing}}",
            "interface conversion: interface {} is <nil>, not map[string]interface {}",
        ),
        ("{{set .no `a` 1}}", "error calling set: assignment to entry in nil map"),
        (
            "{{mustToJson (float64 `inf`)}}",
            "error calling mustToJson: json: unsupported value: +Inf",
        ),
        (
            "{{urlParse `http://h:x/`}}",
            'error calling urlParse: unable to parse url: invalid port ":x" after host',
        ),
        ("{{duration `9223372037`}}", "error calling duration: a duration of more than 292 years"),
        ("{{until 100000}}", "a list of more than 10000 numbers"),
    ],
)
def test_failing_templates_produce_argo_cds_error_messages(template: str, message: str) -> None:
    name = template.replace("\n", "\n\n")  # the template is in a single-quoted YAML string
    result = made("[{list: {elements: [{name: a, nothing: null}, {name: b}]}}]", name)
    assert not result.applications
    assert result.failed
    assert [one.rule for one in result.troubles] == [TEMPLATE]
    assert result.troubles[0].message.endswith(message)


@pytest.mark.parametrize("name", ["{app}", "3"])
def test_a_template_name_that_is_not_a_string_is_an_error(name: str) -> None:
    generators = "[{list: {elements: [{app: web}]}}]"
    text = f"spec: {{generators: {generators}, template: {{metadata: {{name: {name}}}}}}}"
    (trouble,) = render(go_yaml.load(text), Files(), Budget()).troubles
    assert trouble.message == "spec.template.metadata.name is not a string"


def test_random_functions_are_rejected_with_a_hint() -> None:
    (trouble,) = made("[{list: {elements: [{name: a}]}}]", "{{randAlpha 3}}").troubles
    assert trouble.hint.startswith("its value differs between runs: set it with a generator, or ")


@pytest.mark.parametrize(
    ("generators", "message"),
    [
        (
            "[{matrix: {generators: [{list: {elements: [{a: x}]}}]}}]",
            "found less than two generators, Matrix",
        ),
        (
            "[{merge: {mergeKeys: [a], generators: [{list: {elements: []}}]}}]",
            "found less than two generators, Merge",
        ),
        (
            "[{merge: {mergeKeys: [], generators: [{list: {elements: []}}, {list: {elements: []}}]}}]",
            "error getting param sets by merge key: no merge keys were specified",
        ),
        (
            "[{merge: {mergeKeys: [env], generators: [{list: {elements: [{env: a}, {env: a}]}}, {list: {}}]}}]",
            f'{UNIQUE}, Merge requires all param sets to be unique. Duplicate key was {{"env":"a"}}',
        ),
        (
            "[{matrix: {generators: [{list: {}, clusters: {}}, {list: {}}]}}]",
            "failed to get params for first generator in the matrix generator: found more than one generator in matrix.",
        ),
        (
            "[{git: {repoURL: r}}]",
            "error generating params from git: neither directories nor files",
        ),
        ("[{list: {elements: 3}}]", "elements is not a list"),
        ("[{list: 3}]", "the list generator is not a mapping"),
        ("[{nothing: {}}]", "unknown generator 'nothing'"),
        ("3", "the ApplicationSet has no generators"),
        ("[{list: {elementsYaml: 'a: b'}}]", "error unmarshling decoded ElementsYaml"),
        (
            "[{list: {elementsYaml: '[a: .inf]'}}]",
            "error unmarshling decoded ElementsYaml json: unsupported value: +Inf",
        ),
        (
            "[{list: {elements: [{}]}, selector: {matchExpressions: [{key: a, operator: Like}]}}]",
            "error parsing label",
        ),
    ],
)
def test_invalid_generators_produce_argo_cds_error_messages(generators: str, message: str) -> None:
    result = made(generators)
    assert [one.rule for one in result.troubles] == [PARAMS]
    assert result.troubles[0].message.startswith(message)


def test_an_unknown_go_template_option_is_an_error() -> None:
    result = made("[]", more="  goTemplateOptions: [missingkey=whatever]")
    assert result.troubles[0].message == "unrecognized option: missingkey=whatever"


@pytest.mark.parametrize(
    "kind", ["scmProvider", "pullRequest", "plugin", "clusterDecisionResource"]
)
def test_a_generator_that_needs_a_server_does_not_affect_the_others(kind: str) -> None:
    result = made(f"[{{{kind}: {{}}}}, {{list: {{elements: [{{name: web}}]}}}}]")
    assert names(result) == ["web"]
    (unknown,) = result.unknown
    assert unknown.message.startswith(f"the ApplicationSet's {kind} generator needs a server: ")
    assert "--applications cluster" in unknown.hint


def test_a_generator_with_several_kinds_generates_the_applications_of_each_kind() -> None:
    template = "template: {metadata: {labels: {from: clusters}}}"
    generators = (
        f"[{{list: {{elements: [{{name: web}}]}}, clusters: {{{template}}}, plugin: {{}}}}]"
    )
    result = made(generators, clusters=[])
    assert names(result) == ["web", "in-cluster"]
    labels = [app["metadata"].get("labels") for app in result.applications]
    assert labels == [None, {"from": "clusters"}]
    assert [unknown.message.split(" needs ")[0] for unknown in result.unknown] == [
        "the ApplicationSet's plugin generator"
    ]


def test_a_selector_applies_to_all_kinds_of_a_generator() -> None:
    selector = "selector: {matchLabels: {name: in-cluster}}"
    generators = f"[{{list: {{elements: [{{name: web}}]}}, clusters: {{}}, {selector}}}]"
    assert names(made(generators, clusters=[])) == ["in-cluster"]


def test_a_matrix_that_contains_a_generator_that_needs_a_server_has_an_unknown_result() -> None:
    result = made("[{matrix: {generators: [{list: {elements: [{a: b}]}}, {plugin: {}}]}}]")
    assert not result.applications
    assert len(result.unknown) == 1


def test_the_clusters_generator_needs_a_clusters_file() -> None:
    (unknown,) = made("[{clusters: {}}]").unknown
    assert "--clusters FILE" in unknown.hint


def test_the_local_cluster_is_counted_only_once() -> None:
    here = NamedCluster("here", "https://kubernetes.default.svc")
    assert names(made("[{clusters: {}}]", clusters=[here])) == ["here"]
    assert names(made("[{clusters: {}}]", clusters=[])) == ["in-cluster"]
    selector = "{matchLabels: {argocd.argoproj.io/secret-type: cluster}}"
    assert names(made(f"[{{clusters: {{selector: {selector}}}}}]", clusters=[here])) == ["here"]


def test_a_flat_list_of_clusters_generates_one_application() -> None:
    listed = [NamedCluster("a", "https://a"), NamedCluster("b", "https://b")]
    name = "{{range .clusters}}{{.name}}-{{end}}x"
    assert names(made("[{clusters: {flatList: true}}]", name, clusters=listed)) == [
        "in-cluster-a-b-x"
    ]


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("a/*.json", ["a/b/c.json", "a/x.json"]),
        ("a/**/*.json", ["a/b/c.json"]),
        ("a", ["a/b/c.json", "a/x.json", "a/y.txt"]),
        ("a/x.json", ["a/x.json"]),
        ("a/?.json", ["a/x.json"]),
        ("a/[!x].txt", ["a/y.txt"]),
        ("a/[^y]*", ["a/b/c.json", "a/x.json"]),
        ("*/[[:alpha:]].json", ["a/b/c.json", "a/x.json"]),
        ("a/[z-a].txt", []),
        ("a/[x", []),
        ("a/[\\]x-z].txt", ["a/y.txt"]),
        ("a/x.json\\", []),
        ("nothing", []),
    ],
)
def test_file_patterns_match_as_in_git_ls_files(pattern: str, found: list[str]) -> None:
    files = Files("a/x.json", "a/y.txt", "a/b/c.json", "z.json")
    name = "{{.path.path | replace `/` `-`}}.{{.path.filename}}"
    result = made(f"[{{git: {{repoURL: r, files: [{{path: '{pattern}'}}]}}}}]", name, files)
    wanted = [
        f"{path.rpartition('/')[0].replace('/', '-')}.{path.rpartition('/')[2]}" for path in found
    ]
    assert names(result) == wanted


@pytest.mark.parametrize(
    ("pattern", "found"), [("[b]", "x.json"), ("[b]/x.json", "x.json"), ("[b]/y.json", "y.json")]
)
def test_a_file_pattern_also_matches_a_name_that_contains_its_wildcards(
    pattern: str, found: str
) -> None:
    files = Files("[b]/x.json", "b/y.json")
    generators = f"[{{git: {{repoURL: r, files: [{{path: '{pattern}'}}]}}}}]"
    assert names(made(generators, "{{.path.filename}}", files)) == [found]


def test_a_revision_can_come_from_the_first_generator_in_a_matrix() -> None:
    files = Files("apps/web/x.yaml")
    listed = "{list: {elements: [{repo: one, ref: main}, {repo: two, ref: dev}]}}"
    found = "{git: {repoURL: 'https://h/{{.repo}}.git', revision: '{{.ref}}', directories: [{path: apps/*}]}}"
    result = made(
        f"[{{matrix: {{generators: [{listed}, {found}]}}}}]", "{{.path.basename}}-{{.repo}}", files
    )
    assert names(result) == ["web-one", "web-two"]
    assert files.asked == [("https://h/one.git", "main"), ("https://h/two.git", "dev")]


@pytest.mark.parametrize(
    ("value", "name"),
    [
        ("{{index .path.segments 1}}", "web"),  # from the second generator's row
        ("{{.env}}", "prod"),  # from the first generator's row
        ("{{.env | default `x`}}-{{len .env}}", "prod-4"),
        (
            "{{.path.basename}}{{index . `env` | default `-no`}}",
            "web-no",
        ),  # from both rows: in the second pass, only its own row is available
    ],
)
def test_values_in_a_second_generator_can_use_parameters_from_both_generators(
    value: str, name: str
) -> None:
    listed = "{list: {elements: [{env: prod}]}}"
    found = f"{{git: {{repoURL: r, directories: [{{path: apps/*}}], values: {{v: '{value}'}}}}}}"
    generators = f"[{{matrix: {{generators: [{listed}, {found}]}}}}]"
    more = "  goTemplateOptions: [missingkey=error]"
    assert names(made(generators, "{{.values.v}}", Files("apps/web/x"), more=more)) == [name]


def test_invalid_values_in_a_second_generator_fail_the_set() -> None:
    found = "{git: {repoURL: r, directories: [{path: apps/*}], values: {v: '{{fail `no`}}'}}}"
    (trouble,) = made(
        f"[{{matrix: {{generators: [{{list: {{elements: [{{a: b}}]}}}}, {found}]}}}}]"
    ).troubles
    assert (
        'failed to replace parameters in generator: failed to pre-resolve Values key "v": '
        in trouble.message
    )


@pytest.mark.parametrize("selector_first", [True, False])
def test_a_generators_template_also_applies_if_it_has_a_selector(selector_first: bool) -> None:
    body = "list: {elements: [{name: web}], template: {metadata: {labels: {team: a}}}}"
    selector = "selector: {matchLabels: {name: web}}"
    parts = [selector, body] if selector_first else [body, selector]
    (app,) = made(f"[{{{', '.join(parts)}}}]").applications
    assert app["metadata"]["labels"] == {"team": "a"}


def test_a_selector_in_a_second_generator_is_not_templated() -> None:
    second = "{list: {elements: [{b: x}]}, selector: {matchLabels: {b: '{{.a}}'}}}"
    assert not names(
        made(
            f"[{{matrix: {{generators: [{{list: {{elements: [{{a: x}}]}}}}, {second}]}}}}]",
            "{{.b}}",
        )
    )


@pytest.mark.parametrize("text", ["a: [", "3", "[1]", "a: &a [*a]"])
def test_a_file_that_is_not_a_mapping_fails_the_set(text: str) -> None:
    result = made("[{git: {repoURL: r, files: [{path: x.yaml}]}}]", files=Files(**{"x.yaml": text}))
    assert result.troubles[0].message.startswith(
        "error generating params from git: unable to process file 'x.yaml': "
    )


def test_the_project_cannot_be_patched() -> None:
    patch = "  templatePatch: 'spec: {project: other, destination: {name: x}}'"
    (app,) = made("[{list: {elements: [{name: web}]}}]", more=patch).applications
    assert app["spec"] == {"project": "shop", "destination": {"name": "x"}}


def test_a_patch_that_is_not_yaml_fails_the_set() -> None:
    patch = '  templatePatch: "metadata:\\n  annotations:\\n    note: a: b: c\\n"'
    (trouble,) = made("[{list: {elements: [{name: web}]}}]", more=patch).troubles
    assert trouble.message == (
        'error while converting template to json "metadata:\\n  annotations:\\n    note: a: b: c\\n": '
        "yaml: line 3: mapping values are not allowed in this context"
    )


def test_an_unclosed_placeholder_fails_without_go_templates() -> None:
    (trouble,) = made("[{list: {elements: [{name: web}]}}]", "{{name}} {{x", go=False).troubles
    assert trouble.message.startswith("invalid template: Cannot find end tag")


DOUBLED = "{{$x = concat $x $x}}" * 60
HOSTILE = {
    "many rows": "[{matrix: {generators: [@, {matrix: {generators: [@, @]}}]}}]",
    "a selector drops all": (
        "[{matrix: {generators: [{list: {elements: []}}, {list: {elements: []}}]}}, "
        "{matrix: {generators: [@, {matrix: {generators: [@, @]}, selector: {matchLabels: {a: z}}}]}}]"
    ),
}
LONG = "[" + ",".join(f"{{name: n{at}, k{at % 7}: x}}" for at in range(2000)) + "]"


@pytest.mark.slow
@pytest.mark.parametrize("generators", HOSTILE.values(), ids=HOSTILE)
def test_hostile_generators_stay_bounded(generators: str) -> None:
    began = time.process_time()
    result = made(
        generators.replace("@", f"{{list: {{elements: {LONG}}}}}"), budget=Budget(rows=20_000)
    )
    assert not result.applications
    assert result.troubles
    assert time.process_time() - began < 20


@pytest.mark.parametrize(
    "template",
    [
        "{{range until 10000}}{{range until 10000}}x{{end}}{{end}}",
        "{{$x := list 1 2}}" + DOUBLED + "{{len $x}}",
        "{{repeat 999999999 `x`}}",
        "{{$x := repeat 1000000 `a`}}{{$x | replace `a` $x}}",
        "{{$x := repeat 1000000 `a`}}{{list $x $x $x | join $x}}",
        "{{$x := repeat 1000 `a`}}{{$x | indent 100000000}}",
        "{{$d := dict}}{{$_ := set $d `me` $d}}{{toYaml $d}}",
        "{{$d := dict}}{{$_ := set $d `me` $d}}{{$d}}",
        "{{$d := dict}}{{$_ := set $d `me` $d}}{{deepCopy $d}}",
        "{{$d := dict}}{{$_ := set $d `me` $d}}{{merge $d $d}}{{toJson $d}}",
        "{{regexReplaceAll `(a*)*b` (repeat 900000 `a`) (repeat 100 `b`)}}{{fail `x`}}",
        "{{fromYaml `a: &a [*a]`}}",
    ],
)
def test_hostile_templates_stay_bounded(template: str) -> None:
    began = time.process_time()
    manifest = {
        "metadata": {"name": "x"},
        "spec": {
            "goTemplate": True,
            "generators": [{"list": {"elements": [{"name": "a"}]}}],
            "template": {"metadata": {"name": template}},
        },
    }
    result = render(manifest, Files(), Budget())
    assert not result.applications
    assert result.troubles
    assert time.process_time() - began < 5


def test_the_text_of_all_applications_is_bounded() -> None:
    name = "{{repeat 100 .name}}"
    result = made(f"[{{list: {{elements: {LONG}}}}}]", name, budget=Budget(characters=300_000))
    assert "too large" in result.troubles[0].message


def test_the_number_of_applications_is_bounded() -> None:
    result = made(f"[{{list: {{elements: {LONG}}}}}]", budget=Budget(made=1999))
    assert result.troubles[0].message == "the ApplicationSets generate more than 1,999 Applications"


def test_yaml_is_parsed_as_in_go() -> None:
    text = "{a: yes, b: 017, c: 0x1F, d: 1_000, e: 1e3, f: 2026-11-01, g: ~, h: '1', i: .5, 1: x, true: y}"
    assert go_yaml.load(text) == {
        "a": True, "b": 15, "c": 31, "d": 1000, "e": 1000.0, "f": "2026-11-01", "g": None, "h": "1", "i": 0.5, "1": "x",
        "true": True,
    }  # fmt: skip
    merged = "base: &b {x: 1, z: 2}\nweb: {<<: *b, z: 3}\n"
    assert go_yaml.load(merged)["web"] == {"x": 1, "z": 3}
    assert go_yaml.load("") is None


def test_an_alias_bomb_is_rejected() -> None:
    lines = ["a: &a [x,x,x,x,x,x,x,x,x,x]"]
    lines += [
        f"{chr(98 + at)}: &{chr(98 + at)} [{','.join(['*' + chr(97 + at)] * 10)}]"
        for at in range(8)
    ]
    with pytest.raises(Malformed, match="excessive aliasing"):
        go_yaml.load("\n".join(lines))


@pytest.mark.parametrize(
    "value",
    [
        {"a": ["x", {"b": "1.10", "c": []}], "d": "yes", "e": "x: y", "f": "", "g": "a\nb\n", "h": "-", "i": "#x"},
        ["a", ["b", ["c"]], {"k": {"l": None}}],
        {"multi": "a\nb", "quote": "it's", "tab": "a\tb", "date": "2026-11-01", "star": "*x", "dash": "- x", "n": 1.5},
        "text", 3, None, {}, [],
    ],
)  # fmt: skip
def test_yaml_round_trips_unchanged(value: Any) -> None:
    assert go_yaml.load(go_yaml.dump(value, 10_000)) == value


@pytest.mark.slow
def test_a_matrix_searches_a_large_repository_only_once() -> None:
    files = Files(*(f"team-{at % 100}/app-{at}/x.yaml" for at in range(50_000)))
    rows = "[" + ",".join(f"{{env: e{at}}}" for at in range(500)) + "]"
    found = "{git: {repoURL: r, directories: [{path: team-7/app-7}]}}"
    began = time.process_time()
    result = made(
        f"[{{matrix: {{generators: [{{list: {{elements: {rows}}}}}, {found}]}}}}]",
        "{{.path.basename}}-{{.env}}",
        files,
    )
    assert len(names(result)) == 500
    assert len(files.asked) == 1
    assert time.process_time() - began < 10


def test_an_application_name_that_is_too_long_for_kubernetes_is_rejected() -> None:
    result = made("[{list: {elements: [{}]}}]", "a" * 254)
    assert result.applications == ()
    assert [one.rule for one in result.troubles] == [REFUSED]
    assert len(made("[{list: {elements: [{}]}}]", "a" * 253).applications) == 1
