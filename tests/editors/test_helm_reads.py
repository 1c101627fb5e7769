"""Helm reads the values that we read and write, even with anchors, merge keys, or duplicate keys.

All texts are read in one Helm call with the `fromYaml` function, which parses like values files.
"""

import itertools
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from editors.editing import edit, read, target
from support import needs

from task.editors import helm_values
from task.errors import TargetError
from task.model import File, Keys, Target

HEADS = (
    "",
    "base: &base {tag: v1, pull: Always}\n",
    "base: &base {repository: ghcr.io/acme/api, tag: v1}\n",
    "x-version: &version v1\n",
    "imageTag: &version v1\n",
    "base: &base {image: {tag: v1}}\nother: &other {image: {tag: v0}, <<: *base}\n",
)
LINES = (
    "image: {tag: v2}\n",
    "image: {name: x}\n",
    "image: *base\n",
    "image: &image {repository: ghcr.io/acme/api, tag: v3}\n",
    "image: {tag: v4, <<: *base}\n",
    "image: {<<: *base, tag: v4}\n",
    "image: {<<: *base}\n",
    "image: {<<: [{tag: v5}, *base]}\n",
    "image: {<<: *base, <<: {tag: v6}}\n",
    "image: {tag: *version}\n",
    "worker: {repository: ghcr.io/acme/other, tag: *version}\n",
    "worker: {repository: ghcr.io/acme/api, tag: *version}\n",
    "worker: {tag: *version}\n",
    "labels: {version: *version}\n",
    "worker: *image\n",
    "worker: {<<: *image}\n",
    "worker: {<<: *image, tag: v7}\n",
    "<<: *base\n",
    "<<: *other\n",
    "x: {image: {<<: *base}}\n",
)
TEXTS = [
    head + "".join(lines)
    for head in HEADS
    for count in (1, 2)
    for lines in itertools.permutations(LINES, count)
    if all(f"&{name}" in head + "".join(lines) for name in ("base", "image", "version", "other")
           if f"*{name}" in "".join(lines))
]  # fmt: skip
KEYS = ("image.tag", "worker.tag", "base.tag")


def helm(folder: Path, texts: list[str]) -> list[Any]:
    """Return the values that Helm reads from each text."""
    (folder / "templates").mkdir(parents=True)
    (folder / "Chart.yaml").write_text("apiVersion: v2\nname: texts\nversion: 0.1.0\n")
    (folder / "texts.json").write_text(json.dumps(texts))
    template = 'all:\n{{ range .Files.Get "texts.json" | fromJsonArray }}\n- {{ . | fromYaml | toJson }}\n{{ end }}'
    (folder / "templates" / "all.yaml").write_text(template)
    done = subprocess.run(
        [*needs("helm"), "template", "x", str(folder)], capture_output=True, check=True
    )
    return list(yaml.safe_load(done.stdout)["all"])


def at(values: Any, key: str) -> Any:
    for step in key.split("."):
        values = values.get(step) if isinstance(values, dict) else None
    return values


def leaves(values: Any, before: str = "") -> dict[str, Any]:
    if not isinstance(values, dict):
        return {before: values}
    return {
        key: one
        for name, inner in values.items()
        for key, one in leaves(inner, f"{before}.{name}").items()
    }


def aim(key: str) -> Target:
    return target("helmvalues", keys=Keys(tag=key), path="v.yaml")


@pytest.mark.slow
def test_helm_reads_the_values_that_we_read_and_wrote(tmp_path: Path) -> None:
    tried: list[
        tuple[str, str, str, tuple[str, ...]]
    ] = []  # before, key, after, other keys that change
    for text, key in itertools.product(TEXTS, KEYS):
        files = {"v.yaml": File(text)}
        try:
            read(files, aim(key))
            shared = helm_values.shared(files, aim(key))
            after = edit(files, aim(key), "ghcr.io/acme/api:v9")[0]["v.yaml"].text
        except TargetError:
            continue
        assert read({"v.yaml": File(after)}, aim(key)).tag == "v9"
        tried.append((text, key, after, shared))
    assert len(tried) > len(TEXTS)
    before = helm(tmp_path / "before", [text for text, *_ in tried])
    now = helm(tmp_path / "after", [after for *_, after, _ in tried])
    for (text, key, after, shared), old, new in zip(tried, before, now, strict=True):
        assert at(old, key) in (None, read({"v.yaml": File(text)}, aim(key)).tag), text
        for other in (key, *shared):
            assert at(new, other) == "v9", (text, after, other)
        changed = {
            one
            for one in {**leaves(old), **leaves(new)}
            if leaves(old).get(one) != leaves(new).get(one)
        }
        assert changed == {f".{one}" for one in (key, *shared)}, (text, after)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("image:\n  tag: v1\nimage:\n  name: x\n", "line 1 has image, and on line 3, it appears again"),
        ("b: &b {tag: v0}\nimage:\n  tag: v1\n  <<: *b\n", "line 3 has tag, and on line 4, the merge key << adds it"),
        ("b: &b {image: {tag: v0}}\nimage:\n  tag: v1\n<<: *b\n", "line 2 has image, and on line 4, the merge key"),
        ("image:\n  <<: {tag: v1}\n  <<: {tag: v2}\n", "line 2 has tag, and on line 3, the merge key"),
        ("c: &c {tag: v0}\nb: &b\n  tag: v1\n  <<: *c\nimage: *b\n", "line 3 has tag, and on line 4, the merge key"),
        ("image: {tag: &v v1}\nworker: {tag: *v}\n", "image.tag and worker.tag share this value through an anchor"),
        ("image: &i {tag: v1}\nworker: *i\n", "image.tag and worker.tag share this value through an anchor"),
        ("image: {repository: ghcr.io/acme/api, tag: &v v1}\nworker: {repository: ghcr.io/acme/x, tag: *v}\n",
         "image.tag and worker.tag share"),
        ("image: &i {pull: Always}\nworker: *i\n", "image.tag and worker.tag share"),
        ("".join(f"m{n}: &m{n} {{<<: *m{n - 1}}}\n" if n else "m0: &m0 {x: y}\n" for n in range(300))
         + "image: *m299\n", "merge keys refer to each other more than 50 times"),
        ("b: &b {image: {name: x}}\n<<: *b\n", "merge key (<<): adding image would hide its other keys"),
        ("v: &v v1\nimage: {tag: *v}\n" + "".join(f"k{n}: *v\n" for n in range(3000)), "is shared by too many aliases"),
    ],
)  # fmt: skip
def test_ambiguous_or_shared_values_are_rejected(text: str, message: str) -> None:
    with pytest.raises(TargetError) as caught:
        edit({"v.yaml": File(text)}, aim("image.tag"), "ghcr.io/acme/api:v9")
    assert message in str(caught.value)
    assert caught.value.hint


@pytest.mark.parametrize(
    ("text", "shared"),
    [
        ("image: {tag: v1}\n", ()),
        ("v: &v v1\nimage: {tag: *v}\n", ("v",)),
        ("image: {tag: &v v1}\nlabels: {version: *v}\nlist: [*v]\n", ("labels.version", "list[0]")),
        ("image: &i {repository: ghcr.io/acme/api, tag: v1}\nworker: *i\n", ("worker.tag",)),
        (
            "image: &i {registry: ghcr.io, repository: acme/api, tag: v1}\nworker: {<<: *i, x: y}\n",
            ("worker.tag",),
        ),
        (
            "image: &i {repository: acme/api, tag: v1}\nworkers: [{image: *i}]\n",
            ("workers[0].image.tag",),
        ),
        ("image: &i {repository: ghcr.io/acme/api, tag: v1}\nworker: {<<: *i, tag: v7}\n", ()),
        ("image: &i {repository: ghcr.io/acme/api}\nworker: *i\n", ("worker.tag",)),
    ],
)
def test_a_value_shared_by_uses_of_the_same_image_changes_everywhere(
    text: str, shared: tuple[str, ...]
) -> None:
    files = {"v.yaml": File(text)}
    assert sorted(helm_values.shared(files, aim("image.tag"))) == sorted(shared)
    after = edit(files, aim("image.tag"), "ghcr.io/acme/api:v9")[0]
    assert after["v.yaml"].text.count("v9") == 1
