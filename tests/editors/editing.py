"""Helpers for all editor tests: targets, edits, independent readers, and YAML in every style."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import yaml
from hypothesis import strategies as st

from task.editors import EDITORS
from task.image import parse_image
from task.model import (
    Edit,
    File,
    Files,
    Image,
    Keys,
    Parameter,
    Reading,
    Source,
    Target,
    TargetKind,
)

OVERRIDE = "apps/web/.argocd-source-web.yaml"
PATHS: Mapping[TargetKind, str] = {
    "helm-override": OVERRIDE,
    "kustomize-override": OVERRIDE,
    "plugin-override": OVERRIDE,
    "kustomization": "apps/web",
    "helmvalues": "apps/web/values.yaml",
    "manifests": "apps/web",
    "flux": "apps/web/release.yaml",
}
DIGEST = "sha256:" + "a" * 64
OTHER = "sha256:" + "b" * 64


def target(
    kind: TargetKind, image: str = "ghcr.io/acme/api", keys: Keys | None = None, **more: Any
) -> Target:
    """Return a target for the Application `argocd/web` and the alias `api`."""
    path = more.pop("path", PATHS[kind])
    source = more.pop("source", None) or Source("https://git.example/x.git", "apps/web")
    entry = replace(parse_image(image), tag="", digest="")
    more.setdefault("application", "argocd/web")
    more.setdefault("alias", "api")
    return Target(kind, path, keys or Keys(), entry, source, **more)


def source(**more: Any) -> Source:
    """Return the Application's source."""
    return Source("https://git.example/x.git", "apps/web", **more)


def parameters(*triples: tuple[str, str, bool]) -> tuple[Parameter, ...]:
    """Return the `helm.parameters` in a spec."""
    return tuple(Parameter(*triple) for triple in triples)


def image(reference: str) -> Image:
    """Return the image from an event."""
    return parse_image(reference)


def edit(files: Files, aim: Target, reference: str) -> tuple[Files, tuple[Edit, ...]]:
    """Return the result of the editor's `write`."""
    return EDITORS[aim.kind].write(files, aim, parse_image(reference))


def read(files: Files, aim: Target) -> Reading:
    """Return the result of the editor's `read`."""
    return EDITORS[aim.kind].read(files, aim)


def write_one(aim: Target, path: str, text: str | None, reference: str) -> str:
    """Return the text of the only file after an event, whether it changed or not."""
    files = {} if text is None else {path: File(text)}
    changed, _ = edit(files, aim, reference)
    assert set(changed) <= {path}
    return {**files, **changed}[path].text


def plain(text: str) -> Any:
    """Return the first document with all scalars as strings."""
    return next(yaml.load_all(text.removeprefix("\ufeff"), yaml.BaseLoader), None)


def documents(text: str) -> list[Any]:
    """Return all documents as strings."""
    return list(yaml.load_all(text.removeprefix("\ufeff"), yaml.BaseLoader))


def typed(text: str) -> Any:
    """Return the first document as read by PyYAML, a YAML 1.1 reader."""
    return next(yaml.load_all(text.removeprefix("\ufeff"), yaml.SafeLoader), None)


KEYS = st.sampled_from(
    [
        "image",
        "tag",
        "name",
        "web",
        "api",
        "a",
        "b",
        "repository",
        "x y",
        "k.l",
        "1",
        "é",
        "on",
        "😀",
    ]
)
WORDS = st.sampled_from(
    [
        "v1",
        "1.10",
        "nginx",
        "1.2.3",
        "yes",
        "",
        "a b",
        "it's",
        'say "x"',
        "é😀",
        "x" * 200,
        "- y",
        "# z",
        "a: b",
        "0x1f",
        "~",
    ]
)
DATA = st.recursive(
    WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)
MAPPINGS = st.dictionaries(KEYS, DATA, min_size=1, max_size=5)


class Look:
    """One person's YAML style. Hypothesis draws its features step by step."""

    def __init__(self, draw: Any) -> None:
        self.draw = draw
        self.step = draw(st.sampled_from([2, 2, 3, 4]))
        self.shift = draw(st.booleans())
        self.noise = draw(st.booleans())
        self.quotes = True

    def pick(self, *choices: str) -> str:
        return str(self.draw(st.sampled_from(choices)))

    def comment(self) -> str:
        return self.pick("", "", "  # note", " #\ttab: x") if self.noise else ""

    def word(self, text: str, *, flow: bool = False) -> str:
        style = self.pick("'", '"', "plain", "plain") if self.quotes else "plain"
        simple = text.replace(" ", "").replace(".", "").isalnum() and text.isascii()
        if style == "plain" and simple and text.strip() == text:
            return text
        if style == "'" or (flow and style == "plain"):
            return "'" + text.replace("'", "''") + "'"
        return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'

    def flow(self, data: Any) -> str:
        if isinstance(data, dict):
            return (
                "{"
                + ", ".join(f"{self.word(k, flow=True)}: {self.flow(v)}" for k, v in data.items())
                + "}"
            )
        if isinstance(data, list):
            return "[" + ", ".join(self.flow(each) for each in data) + "]"
        return self.word(data, flow=True)

    def lines(self, data: Any) -> list[str]:
        """Return the block-style lines of a mapping or a list that is not empty."""
        out: list[str] = []
        for number, item in enumerate(data.items() if isinstance(data, dict) else data):
            if self.noise and number and self.draw(st.integers(0, 3)) == 0:
                out.append(self.pick("", "# between"))
            if isinstance(data, dict):
                out += self.entry(*item)
            else:
                out += self.item(item)
        return out

    def item(self, data: Any) -> list[str]:
        if isinstance(data, dict | list) and data and self.pick("block", "flow") == "block":
            first, *rest = self.lines(data)
            return [f"- {first}", *(f"  {line}" if line else line for line in rest)]
        return [f"- {self.flow(data)}{self.comment()}"]

    def entry(self, key: str, data: Any) -> list[str]:
        name = self.word(key)
        if isinstance(data, str):
            return self.scalar(name, data)
        if not data or self.pick("block", "block", "flow") == "flow":
            return [f"{name}: {self.flow(data)}{self.comment()}"]
        margin = " " * (self.step if isinstance(data, dict) or self.shift else 0)
        return [
            f"{name}:{self.comment()}",
            *(margin + line if line else line for line in self.lines(data)),
        ]

    def scalar(self, name: str, text: str) -> list[str]:
        block = self.pick("|-", ">-", "line", "line", "line", "line") if self.quotes else "line"
        if block != "line" and text.strip() == text and text and not text.startswith("#"):
            return [f"{name}: {block}", f"{' ' * self.step}{text}"]
        return [f"{name}: {self.word(text)}{self.comment()}"]


@st.composite
def styled(draw: Any, data: Any, *, quotes: bool = True) -> str:
    """Draw YAML for the data in a person's style. Without `quotes`, plain words stay plain."""
    look = Look(draw)
    look.quotes = quotes
    eol = draw(st.sampled_from(["\n", "\n", "\r\n"]))
    lines = [look.flow(data)] if draw(st.integers(0, 5)) == 0 else look.lines(data)
    head = draw(
        st.sampled_from(
            ["", "", "---" + eol, "# head" + eol, "\ufeff", "%YAML 1.1" + eol + "---" + eol]
        )
    )
    return str(head + eol.join(lines) + draw(st.sampled_from([eol, eol, "", eol + "# end" + eol])))


@st.composite
def yaml_texts(draw: Any) -> tuple[str, dict[str, Any]]:
    """Draw a values file as people might write it, perhaps with a second document, and its data."""
    data = draw(MAPPINGS)
    text = draw(styled(data))
    eol = "\r\n" if "\r" in text else "\n"
    tail = draw(st.sampled_from(["", "", f"---{eol}other: 1{eol}", f"...{eol}"]))
    return text + (eol if tail and not text.endswith("\n") else "") + tail, data
