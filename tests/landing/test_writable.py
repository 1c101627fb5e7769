"""A law: files that annotations may not write are never written, whatever the target and links."""

import posixpath
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.memory import URL, Branch, Story
from support.runs import WEB, application

from task.model import File, Files, Place, Snapshot

FORBIDDEN = (
    ".image-update",
    ".git",
    ".gitmodules",
    ".gitattributes",
    ".gitignore",
    ".github",
    ".gitlab",
    ".gitlab-ci.yml",
    ".circleci",
    "azure-pipelines.yml",
    "bitbucket-pipelines.yml",
    "Jenkinsfile",
    "CODEOWNERS",
)
STATES = ".image-update/"
TEXTS = {
    "values.yaml": "image:\n  tag: 1.0.0\n",
    "kustomization.yaml": f"resources: []\nimages:\n- name: {WEB}\n  newTag: 1.0.0\n",
    "pod.yaml": f"apiVersion: v1\nkind: Pod\nspec:\n  containers:\n  - image: {WEB}:1.0.0\n",
}


class Linked(Branch):
    """A branch with symbolic links."""

    def __init__(self, files: Mapping[str, str], links: Iterable[str]) -> None:
        super().__init__(files)
        self.links = tuple(links)

    def snapshot(
        self,
        branch: str,
        places: Iterable[Place],
        heads: Collection[str] = (),
        default: Collection[Place] = (),
        besides: Callable[[Files], Iterable[Place]] | None = None,
    ) -> Snapshot:
        found = super().snapshot(branch, places, heads, default, besides)
        return replace(
            found, files={**found.files, **{path: File("", "120000") for path in self.links}}
        )


def cased(word: str) -> st.SearchStrategy[str]:
    """Draw the word in any mix of upper and lower case."""
    return st.lists(st.booleans(), min_size=len(word), max_size=len(word)).map(
        lambda up: "".join(one.upper() if high else one for one, high in zip(word, up, strict=True))
    )


bad = st.sampled_from(FORBIDDEN).flatmap(cased)
part = st.one_of(st.sampled_from(("apps", "web", "..", ".", "link", "")), bad)
folder = st.lists(part, max_size=4).map("/".join)
file = st.one_of(st.sampled_from(tuple(TEXTS)), bad)


def forbidden(path: str) -> bool:
    return bool({word.lower() for word in FORBIDDEN} & set(path.lower().split("/")))


@pytest.mark.slow
@given(
    source=folder,
    kind=st.sampled_from(
        ("", "helmvalues", "kustomization", "manifests", "helmvalues:", "manifests:", "/", "$ref")
    ),
    where=folder,
    name=file,
    there=st.lists(st.tuples(folder, file), max_size=4),
    rooted=st.booleans(),
    recurse=st.booleans(),
    section=st.sampled_from(("helm", "kustomize", "directory")),
)
def test_annotations_never_write_outside_the_permitted_files(
    source: str,
    kind: str,
    where: str,
    name: str,
    there: list[tuple[str, str]],
    rooted: bool,
    recurse: bool,
    section: str,
) -> None:
    path = f"{where}/{name}"
    target = {
        "helmvalues:": f"helmvalues:{'/' * rooted}{path}",
        "manifests:": f"manifests:{'/' * rooted}{path if rooted else where}",
        "kustomization": f"kustomization:{'/' * rooted}{where}",
        "/": f"/{path}",
        "$ref": f"helmvalues:$ref/{path}",
    }.get(kind, kind)
    given_ = {"write_back_target": target, "web.helm.image_tag": "image.tag"}
    app = application("a", URL, **given_)
    one = {
        "repoURL": URL,
        "path": source,
        "targetRevision": "main",
        section: {"recurse": True} if recurse else {},
    }
    app["spec"] = {"sources": [{**one, "ref": "ref"}]} if kind == "$ref" else {"source": one}
    files: dict[str, str] = {}
    links: list[str] = []
    for at, called in [
        (where, name),
        (source, name),
        (posixpath.join(source, where), name),
        *there,
    ]:
        full = posixpath.normpath(f"/{at}/{called}").strip("/")
        before = [full[:end] for end, letter in enumerate(full) if letter == "/"]
        if link := next((one for one in before if one.endswith("link")), ""):
            links.append(link)
        elif not any(old.startswith(f"{full}/") for old in files) and not set(before) & set(files):
            files[full] = TEXTS.get(called, TEXTS["pod.yaml"] + TEXTS["values.yaml"])
    story = Story(app, Linked(files, links))
    story.event("1.1.0")
    with suppress(StopIteration):  # an Application with an invalid annotation leads to no decision
        story.hold("load test")
    changed = {path for path, text in story.branch.files.items() if files.get(path) != text}
    written = {path for path in changed if not path.startswith(STATES)}
    assert not [path for path in written if forbidden(path)]
    assert not [path for path in written for link in links if f"{path}/".startswith(f"{link}/")]
    assert {posixpath.basename(path) for path in changed - written} <= {"argocd_a.state"}
    assert not changed & set(files) & {path for path in files if path.startswith(STATES)}


def test_a_folder_of_manifests_that_contains_a_ci_file_is_not_changed() -> None:
    files = {"apps/a/pod.yaml": TEXTS["pod.yaml"], ".github/pod.yaml": TEXTS["pod.yaml"]}
    story = Story(application("a", URL, write_back_target="manifests:/"), Branch(files))
    assert story.event("1.1.0") == ("error", "not-permitted")
    assert story.branch.files == files
