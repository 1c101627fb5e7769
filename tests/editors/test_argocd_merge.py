"""Override files as merged by Argo CD: the image is updated, and nothing is lost."""

import json
from typing import Any

import pytest
import yaml
from editors.argocd import GenerationFailed, merged
from editors.editing import DIGEST, OVERRIDE, edit, source, target
from hypothesis import given
from hypothesis import strategies as st
from support import DATA

from task.editors.file_text import identity_of
from task.editors.override_kustomize import parse_entry
from task.image import parse_image
from task.model import File, Keys, Parameter

COMMON = "apps/web/.argocd-source.yaml"
CASES = json.loads((DATA / "cases" / "argocd-merge.json").read_text())["cases"]


@pytest.mark.parametrize("case", [pytest.param(case, id=case["id"]) for case in CASES])
def test_our_model_of_the_merge_matches_argo_cd(case: dict[str, Any]) -> None:
    given = case["input"]
    if case["expect"].get("error"):
        with pytest.raises(GenerationFailed):
            merged(given["source"], *given["overrides"])
    else:
        assert merged(given["source"], *given["overrides"]) == case["expect"]


def by_name(helm: dict[str, Any]) -> dict[str, tuple[str, bool]]:
    """Return the parameters as Helm reads them: the last parameter with a given name wins."""
    return {
        each["name"]: (each["value"], bool(each.get("forceString")))
        for each in helm.get("parameters", ())
    }


NAMES = st.sampled_from(["a", "b.c", "image.tag", "image.name", "replicas", "long", "é"])
VALUES = st.text(max_size=12) | st.sampled_from(
    ["1", "true", "1.10", "a: b", "# x", "- y", "a\nb\n", "{{ x }}", "'", '"']
)
SPECS = st.lists(st.builds(Parameter, NAMES, VALUES, st.booleans()), max_size=5)
ENTRIES = st.lists(
    st.fixed_dictionaries(
        {"name": NAMES, "value": st.sampled_from(["1", "x", "1.10", "old"])},
        optional={"forcestring": st.booleans(), "extra": st.just("y")},
    ),
    max_size=4,
)


@pytest.mark.slow
@given(
    SPECS,
    st.none() | ENTRIES,
    st.none() | ENTRIES,
    st.sampled_from(["1.10", "v2", f"main@{DIGEST}"]),
)
def test_an_update_neither_loses_nor_adds_helm_parameters(
    spec: list[Parameter], existing: list[Any] | None, common: list[Any] | None, version: str
) -> None:
    files = {
        path: File(yaml.safe_dump({"helm": {"parameters": items}}))
        for path, items in ((COMMON, common), (OVERRIDE, existing))
        if items is not None
    }
    aim = target("helm-override", "acme/web", source=source(parameters=tuple(spec)))
    after = {**files, **edit(files, aim, f"acme/web:{version}")[0]}
    origin = {
        "helm": {
            "parameters": [
                {"name": one.name, "value": one.value, "forceString": one.force_string}
                for one in spec
            ]
        }
    }
    own = {"image.name": ("acme/web", True), "image.tag": (version, True)}
    seen = by_name(merged(origin, *(file.text for file in files.values()))["helm"])
    shared = [files[COMMON].text] if common is not None else []
    assert by_name(merged(origin, *shared, after[OVERRIDE].text)["helm"]) == seen | own


@pytest.mark.slow
@given(SPECS, ENTRIES, st.none() | ENTRIES)
def test_carry_parameters_decides_whether_missing_parameters_are_added(
    spec: list[Parameter], existing: list[Any], common: list[Any] | None
) -> None:
    files = {OVERRIDE: File(yaml.safe_dump({"helm": {"parameters": existing}}))}
    files |= (
        {} if common is None else {COMMON: File(yaml.safe_dump({"helm": {"parameters": common}}))}
    )
    below = {one.name for one in spec} | {one["name"] for one in common or ()}
    there, own = {one["name"] for one in existing}, {"image.name", "image.tag"}
    for carry, names in ((True, there | below), (False, there)):
        aim = target(
            "helm-override", "acme/web", source=source(parameters=tuple(spec)), carry=carry
        )
        after = edit(files, aim, "acme/web:v2")[0] or files
        assert set(by_name(merged({}, after[OVERRIDE].text)["helm"])) == names | own


def test_an_unquoted_number_in_an_override_file_is_quoted() -> None:
    files = {
        OVERRIDE: File(
            "helm:\n  parameters:\n  - name: replicas\n    value: 3\n    forcestring: false\n"
        )
    }
    with pytest.raises(GenerationFailed):
        merged({}, files[OVERRIDE].text)
    after = edit(files, target("helm-override", "acme/web"), "acme/web:2")[0]
    assert by_name(merged({}, after[OVERRIDE].text)["helm"])["replicas"] == ("3", False)


def test_a_parameter_does_not_inherit_from_the_spec_by_position() -> None:
    spec = (Parameter("first", "1", force_string=True), Parameter("second", "2"))
    text = "helm:\n  parameters:\n  - name: second  # from the Application\n    value: '1'\n"
    aim = target("helm-override", "acme/web", source=source(parameters=spec))
    after = edit({OVERRIDE: File(text)}, aim, "acme/web:2")[0]
    origin = {
        "helm": {
            "parameters": [
                {"name": one.name, "value": one.value, "forceString": one.force_string}
                for one in spec
            ]
        }
    }
    assert by_name(merged(origin, after[OVERRIDE].text)["helm"])["second"] == ("2", False)


def test_parameters_written_by_people_are_not_reset_to_the_spec() -> None:
    spec = (Parameter("db.tag", "1.0"), Parameter("log", "info"))
    items = [
        {"name": "db.tag", "value": "v7", "forcestring": True},
        {"name": "log", "value": "debug"},
    ]
    text = yaml.safe_dump({"helm": {"parameters": items}})
    aim = target(
        "helm-override", "acme/web", source=source(parameters=spec), managed=("db.tag", "image.tag")
    )
    after = edit({OVERRIDE: File(text)}, aim, "acme/web:2")[0]
    found = by_name(merged({}, after[OVERRIDE].text)["helm"])
    assert (found["db.tag"], found["log"]) == (("v7", True), ("debug", False))


def test_no_parameters_are_copied_if_carry_is_off() -> None:
    aim = target(
        "helm-override",
        "acme/web",
        source=source(parameters=(Parameter("log", "info"),)),
        carry=False,
    )
    after = edit({}, aim, "acme/web:2")[0]
    assert set(by_name(merged({}, after[OVERRIDE].text)["helm"])) == {"image.name", "image.tag"}


IMAGES = st.sampled_from(
    [
        "reg:5000/a",
        "reg:5000/b",
        "nginx",
        "docker.io/library/nginx",
        "acme/web",
        "ghcr.io/library/nginx",
    ]
)
ENTRY = st.builds(
    lambda left, name, tag: f"{left}{name}:{tag}",
    st.sampled_from(["", "", "x=", "y="]),
    IMAGES,
    st.just("1"),
)


@given(
    st.lists(ENTRY, max_size=4),
    st.none() | st.lists(ENTRY, max_size=4),
    IMAGES,
    st.sampled_from(["", "x", "acme/web"]),
)
def test_an_update_neither_loses_nor_adds_kustomize_images(
    spec: list[str], existing: list[str] | None, name: str, kname: str
) -> None:
    files = (
        {}
        if existing is None
        else {OVERRIDE: File(yaml.safe_dump({"kustomize": {"images": existing}}))}
    )
    aim = target(
        "kustomize-override", name, Keys(kustomize_name=kname), source=source(images=tuple(spec))
    )
    after = {**files, **edit(files, aim, f"{name}:2")[0]}
    result = [parse_entry(text) for text in merged({}, after[OVERRIDE].text)["kustomize"]["images"]]
    mine, seen = (
        parse_image(name).identity,
        [parse_entry(one) for one in (spec if existing is None else existing)],
    )
    assert {each.key for each in result if each.identity != mine} <= {each.key for each in seen}
    others = {each.key for each in seen if each.identity != mine and each.key != identity_of(kname)}
    assert others <= {each.key for each in result}
    assert all(each.right.endswith(":2") == (each.identity == mine) for each in result)
    assert any(
        each.identity == mine and (not kname or each.key == identity_of(kname)) for each in result
    )
    assert edit(after, aim, f"{name}:2") == ({}, ())


def test_plugin_variables_in_the_spec_are_copied() -> None:
    aim = target(
        "plugin-override", "acme/web", Keys(tag="TAG"), source=source(env=(("LOG", "info"),))
    )
    after = edit({}, aim, "acme/web:1e3")[0]
    result = merged({"plugin": {"env": [{"name": "LOG", "value": "info"}]}}, after[OVERRIDE].text)
    assert result["plugin"]["env"] == [
        {"name": "LOG", "value": "info"},
        {"name": "TAG", "value": "1e3"},
    ]
