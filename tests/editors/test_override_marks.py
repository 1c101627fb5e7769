"""In override files, a comment marks each copied entry. Unmarked entries belong to people."""

import re
import time
from dataclasses import replace
from typing import Any

import pytest
import yaml
from editors.editing import OVERRIDE, edit, parameters, plain, source, target
from hypothesis import given
from hypothesis import strategies as st

from task.editors import strays
from task.editors.overrides import FROM_COMMON, FROM_SPEC, Stray
from task.model import File, Keys, Target

COMMON = "apps/web/.argocd-source.yaml"
API = "ghcr.io/acme/api"
AIMS: dict[str, Any] = {
    "helm": lambda **spec: target(
        "helm-override", source=source(parameters=parameters(*spec.get("items", ())))
    ),
    "plugin": lambda **spec: target(
        "plugin-override",
        keys=Keys(tag="TAG"),
        source=source(env=tuple(one[:2] for one in spec.get("items", ()))),
    ),
    "kustomize": lambda **spec: target(
        "kustomize-override",
        source=source(images=tuple(f"{name}:{value}" for name, value, _ in spec.get("items", ()))),
    ),
}


def element(section: str, name: str, value: str, mark: str = "") -> str:
    """Return a list element as people would write it."""
    mark = f"  {mark}" if mark else ""
    if section == "kustomize":
        return f"  - {name}:{value}{mark}\n"
    force = "    forcestring: false\n" if section == "helm" else ""
    return f"  - name: {name}{mark}\n    value: {value}\n{force}"


def document(section: str, *elements: str) -> str:
    key = {"helm": "parameters", "plugin": "env", "kustomize": "images"}[section]
    return f"{section}:\n  {key}:\n{''.join(elements)}"


def written(aim: Target, text: str, common: str | None = None) -> str:
    """Return the override file after an event. Writing it again changes nothing."""
    files = {OVERRIDE: File(text), **({} if common is None else {COMMON: File(common)})}
    after = {**files, **edit(files, aim, f"{API}:v2")[0]}
    assert edit(after, aim, f"{API}:v2") == ({}, ())
    return after[OVERRIDE].text


ROWS: list[tuple[str, list[tuple[str, str, str]], list[tuple[str, str, str]], str, list[tuple[str, str, str]]]] = [
    # description; entries in the file, in the spec, and in the common file; result
    ("marked follows", [("a", "v1", FROM_SPEC)], [("a", "v3", "")], "", [("a", "v3", FROM_SPEC)]),
    ("its own stays", [("a", "v1", "")], [("a", "v3", "")], "", [("a", "v1", "")]),
    ("another comment is none", [("a", "v1", "# from me")], [("a", "v3", "")], "", [("a", "v1", "# from me")]),
    ("marked and gone", [("a", "v1", FROM_SPEC), ("b", "v1", "")], [], "", [("b", "v1", "")]),
    ("new is marked", [], [("a", "v3", "")], "", [("a", "v3", FROM_SPEC)]),
    ("a list of ours takes more", [("b", "v1", FROM_SPEC)], [("b", "v1", ""), ("a", "v3", "")], "", [("b", "v1", FROM_SPEC), ("a", "v3", FROM_SPEC)]),
    ("somebody's list keeps what it has", [("b", "v1", "")], [("a", "v3", "")], "v4", [("b", "v1", "")]),
    ("what the common file hides stays hidden", [], [("b", "v3", "")], "v4", [("a", "v4", FROM_COMMON)]),
    ("and later, too", [("a", "v4", FROM_COMMON)], [("b", "v3", "")], "v4", [("a", "v4", FROM_COMMON)]),
    ("the common file is said", [], [], "v4", [("a", "v4", FROM_COMMON)]),
    ("the common file comes first", [("a", "v1", FROM_SPEC)], [("a", "v3", "")], "v4", [("a", "v4", FROM_COMMON)]),
    ("back to the spec", [("a", "v1", FROM_COMMON)], [("a", "v3", "")], "", [("a", "v3", FROM_SPEC)]),
    ("its own in the common file, too", [("a", "v1", "")], [], "v4", [("a", "v1", "")]),
]  # fmt: skip


@pytest.mark.parametrize("section", AIMS)
@pytest.mark.parametrize(
    ("before", "spec", "common", "after"), [pytest.param(*row[1:], id=row[0]) for row in ROWS]
)
def test_only_marked_entries_follow_the_spec(
    section: str, before: Any, spec: Any, common: str, after: Any
) -> None:
    aim = AIMS[section](items=[(name, value, False) for name, value, _ in spec])
    shared = document(section, element(section, "a", common)) if common else None
    text = written(aim, document(section, *(element(section, *one) for one in before)), shared)
    expected = document(section, *(element(section, *one) for one in after))
    assert text.startswith(expected)
    assert (
        "from" not in text[len(expected) :]
    )  # the only other entry is the image's own, which is not marked


@pytest.mark.parametrize("section", AIMS)
@pytest.mark.parametrize("blank", [" ", "    ", "\t"])
def test_marks_after_any_whitespace_are_recognized(section: str, blank: str) -> None:
    mark = f"{blank}{FROM_SPEC}{blank}"
    own = "v1" if section == "kustomize" else "value: v1"
    text = document(section, element(section, "a", "v1")).replace(own, f"{own}{mark}")
    after = written(AIMS[section](items=[("a", "v3", False)]), text)
    assert after.startswith(text.replace("v1", "v3"))


@pytest.mark.parametrize(
    "text",
    [
        f"helm:\n  parameters:\n  - {{name: a, value: v1}}  {FROM_SPEC}\n",
        f"helm:\n  parameters: [{{name: a, value: v1}}]  {FROM_SPEC}\n",
        f"helm: {{parameters: [{{name: a, value: v1}}]}}  {FROM_SPEC}\n",
        f"base: &a {{name: a, value: v1}}\nhelm:\n  parameters:\n  - *a  {FROM_SPEC}\n",
        f"helm:\n  parameters:\n  {FROM_SPEC}\n  - name: a\n    value: v1\n",
        f"helm:\n  parameters:\n  - name: a\n    value: |-  {FROM_SPEC}\n      v1\n",
        f"helm:\n  parameters:\n  - name: a\n    value: 'v1  {FROM_SPEC}'\n",
    ],
)
def test_only_comments_after_block_style_values_are_marks(text: str) -> None:
    aim = AIMS["helm"](items=[("a", "v3", False)])
    before = next(one for one in plain(text)["helm"]["parameters"] if one["name"] == "a")
    after = written(aim, text)
    assert before in plain(after)["helm"]["parameters"]
    assert strays("helm-override", {OVERRIDE: File(after)}, aim) == (
        Stray("a", FROM_SPEC, hidden=False),
    )


@pytest.mark.parametrize(
    ("element", "spec", "told"),
    [
        ("{name: a, value: v1, forcestring: false}", ("a", "v1", False), False),
        ("{name: a, value: v1}", ("a", "v1", False), False),
        ("{name: a, value: v2}", ("a", "v1", False), True),
        ("{name: a, value: v1, forcestring: true}", ("a", "v1", False), True),
        ("{name: image.tag, value: v1}", ("image.tag", "v0", False), False),  # belongs to the image
        ("{name: db.tag, value: v1}", ("db.tag", "v0", False), False),  # belongs to another alias
        ("{name: own, value: v1}", ("a", "v1", False), False),
    ],
)
def test_unmarked_entries_that_differ_from_the_spec_are_reported(
    element: str, spec: tuple[str, str, bool], told: bool
) -> None:
    files = {OVERRIDE: File(f"helm:\n  parameters:\n  - {element}\n")}
    aim = replace(AIMS["helm"](items=[spec]), managed=("image.tag", "db.tag"))
    assert any(not one.hidden for one in strays("helm-override", files, aim)) is told
    assert strays("helm-override", files, replace(aim, carry=False)) == ()


@pytest.mark.parametrize("section", AIMS)
@pytest.mark.parametrize(
    ("elements", "common", "hidden"),
    [
        ([("b", "v1", "")], "", [FROM_SPEC]),
        ([("b", "v1", "")], "v4", [FROM_COMMON]),
        ([("b", "v1", "# from me")], "", [FROM_SPEC]),
        ([("b", "v1", FROM_SPEC)], "", []),  # the next update adds this entry
        ([("a", "v1", "")], "", []),
        ([], "", []),
    ],
)
def test_spec_entries_hidden_by_a_manual_list_are_reported(
    section: str, elements: Any, common: str, hidden: list[str]
) -> None:
    aim = AIMS[section](items=[("a", "v3", False)])
    files = {OVERRIDE: File(document(section, *(element(section, *one) for one in elements)))}
    files |= {COMMON: File(document(section, element(section, "a", common)))} if common else {}
    name = "kustomize.images[a]" if section == "kustomize" else "a"
    found = [one for one in strays(aim.kind, files, aim) if one.hidden]
    assert found == [Stray(name, origin, hidden=True) for origin in hidden]
    for carry in (True, False):
        assert not any(one.hidden for one in strays(aim.kind, files, replace(aim, carry=carry)))


@pytest.mark.slow
def test_a_file_with_ten_thousand_marks_is_written_quickly() -> None:
    elements = [
        element("kustomize", f"acme/i{number}", "v1", FROM_SPEC) for number in range(10_000)
    ]
    began = time.process_time()
    assert (
        written(AIMS["kustomize"](), document("kustomize", *elements))
        == f"kustomize:\n  images:\n  - {API}:v2\n"
    )
    assert time.process_time() - began < 30


def test_a_manual_entry_with_the_image_name_gets_no_mark() -> None:
    aim = target("kustomize-override", source=source(images=(f"{API}:v1",)), carry=True)
    entry = f"kustomize:\n  images:\n  - {API}=ghcr.io/acme/web:v1\n"
    assert written(aim, entry) == f"{entry}  - {API}:v2\n"


def test_a_marked_entry_that_shares_a_line_is_kept() -> None:
    text = f"helm:\n  parameters:\n  -  # first\n    name: a  {FROM_SPEC}\n    value: v1\n    forcestring: false\n"
    assert written(AIMS["helm"](), text).startswith(text)


def test_other_kinds_of_targets_report_no_stray_entries() -> None:
    assert strays("kustomization", {}, target("kustomization")) == ()


NAMES = st.sampled_from(["a", "b.c", "image.tag", "image.name", "x y", "1", "é"])
VALUES = st.sampled_from(["v1", "1.10", "true", "a: b", "# x", "- y", "", "it's", "{{ x }}"])
MARKS = st.sampled_from(["", "", FROM_SPEC, FROM_COMMON, "# note"])
OTHERS = st.lists(st.tuples(NAMES, VALUES, st.booleans()), max_size=4, unique_by=lambda one: one[0])


@pytest.mark.slow
@given(
    st.lists(st.tuples(NAMES, VALUES, MARKS, st.booleans()), max_size=5), OTHERS, st.none() | OTHERS
)
def test_marked_entries_follow_their_origin_and_unmarked_entries_stay(
    elements: Any, spec: Any, common: Any
) -> None:
    """Marked entries equal their origin. Unmarked entries remain byte-for-byte unchanged."""
    blocks = [
        f"  - name: {quoted(name)}{f'  {mark}' if mark else ''}\n    value: {quoted(value)}\n    forcestring: {flag}\n"
        for name, value, mark, flag in [(*one[:3], str(one[3]).lower()) for one in elements]
    ]
    text = "helm:\n  parameters:\n" + "".join(blocks)
    shared = (
        None
        if common is None
        else yaml.safe_dump({"helm": {"parameters": [item(*one) for one in common]}})
    )
    after = written(AIMS["helm"](items=spec), text, shared)
    marks = {mark for *_, mark, _ in elements}
    followed = spec if common is None or FROM_SPEC in marks else ()
    carried = {one[0]: item(*one) for one in (*followed, *(common or ()))}
    carried = carried if not elements or marks & {FROM_SPEC, FROM_COMMON} else {}
    own = {"image.name": API, "image.tag": "v2"}
    for block, (name, _, mark, _) in zip(blocks, elements, strict=True):
        assert name in own or mark in {FROM_SPEC, FROM_COMMON} or block in after
    kept = yaml.safe_load(after)["helm"]["parameters"]
    marked = re.findall(
        r"(?m)^  - name: (.*?)  # from (?:the Application|\.argocd-source\.yaml)$", after
    )
    for name in map(yaml.safe_load, marked):
        assert carried[name] in kept
    assert set(own) | set(carried) <= {one["name"] for one in kept}
    assert {one["name"]: one["value"] for one in kept if one["name"] in own} == own


def quoted(text: str) -> str:
    return '"' + text + '"'


def item(name: str, value: str, force: bool) -> dict[str, Any]:
    return {"name": name, "value": value, "forcestring": force}
