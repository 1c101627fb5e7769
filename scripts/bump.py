"""Set the version in all files: `python -m scripts.bump 1.2.0`. `--check [v1.2.0]` only checks that
all files agree.

`task/__init__.py` is the only source of the version. Versions in other files are found by pattern,
so new samples do not have to be listed here.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parent.parent
SOURCE = "task/__init__.py"
VERSION = re.compile(r"(?:0|[1-9]\d*)\.(?:0|[1-9]\d*)\.(?:0|[1-9]\d*)(?:-[0-9A-Za-z.-]+)?")
_V = VERSION.pattern
_SHORTEST = _V.replace(
    "]+)?", "]+?)??"
)  # the suffix of the action's image may follow the version: v1.2.0-action

# The files that contain a version, and their patterns. The
# text around a version is kept. The first file is the source.
PLACES: tuple[tuple[str, tuple[str, ...]], ...] = (
    (SOURCE, (rf'^__version__ = "({_V})"$',)),
    ("Dockerfile", (rf"^ARG VERSION=({_V})$",)),
    ("action.yml", ()),
    ("README.md", ()),
    ("docs/**/*.md", ()),
    ("tekton/**/*.yaml", (rf'^    app\.kubernetes\.io/version: "?({_V})"?$',)),
    ("tekton/**/*.md", ()),
    ("argo-workflows/**/*.yaml", (rf'^    app\.kubernetes\.io/version: "?({_V})"?$',)),
    ("argo-workflows/**/*.yml", (rf"^version: ({_V})$",)),
    ("argo-workflows/**/*.md", ()),
    ("templates/*", ()),
    ("examples/**/*.*", ()),
    (".github/ISSUE_TEMPLATE/*", ()),
    ("tests/data/help/*", ()),
)
# Patterns that apply to all files: images (mirrored or not), bundles, the action, the component,
# the package, and links to files at a tag.
NAMED = (
    rf"/image-update(?:/bundle)?[:@]v({_SHORTEST})(?=-action\b|[^0-9A-Za-z.-]|$)",
    rf"raw\.githubusercontent\.com/argocd-image-update/image-update/v({_V})/",
    rf"github\.com/argocd-image-update/image-update/blob/v({_V})/",
    rf"argocd-image-update/image-update/image-update@({_V})(?![0-9A-Za-z.-])",
    rf"\bargocd-image-update==({_V})(?![0-9A-Za-z.-])",
    rf"name: revision, value: v({_V})\}}",
    rf"^    rev: v({_V})$",  # the pre-commit hook
    rf"argocd-image-update/image-update//[\w/-]+\?ref=v({_V})$",
    rf"\bimage-update ({_V})(?=,|$)",  # as printed by --version
)


def main(argv: list[str]) -> int:
    """Run the command. Return its exit code, which is 1 if the versions differ."""
    if argv[:1] == ["--check"]:
        return _check(argv[1] if len(argv) > 1 else f"v{current()}")
    if len(argv) != 1 or not VERSION.fullmatch(argv[0].removeprefix("v")):
        sys.stderr.write("usage: python -m scripts.bump VERSION (1.2.0), or --check [TAG]\n")
        return 2
    for path in bump(argv[0].removeprefix("v")):
        sys.stdout.write(f"{path}\n")
    return 0


def current(root: Path = ROOT) -> str:
    """Return the version in the source file."""
    return versions(root)[SOURCE].pop()


def versions(root: Path = ROOT) -> dict[str, set[str]]:
    """Return the versions that each file contains."""
    found: dict[str, set[str]] = {}
    for path, patterns in _files(root):
        text = path.read_text(encoding="utf-8")
        named = {
            match[1] for pattern in patterns for match in re.finditer(pattern, text, re.MULTILINE)
        }
        if named:
            found[path.relative_to(root).as_posix()] = named
    return found


def bump(version: str, root: Path = ROOT) -> list[str]:
    """Write the version to all files and return the files that changed. Running this again changes
    nothing.
    """
    changed = []
    notes = _notes(root, version)
    for path, patterns in _files(root):
        text = path.read_text(encoding="utf-8")
        new = text
        for pattern in patterns:
            new = re.sub(pattern, lambda match: _with(match, version), new, flags=re.MULTILINE)
        new = (
            _with_notes(new, notes, stamp=text != new) if path.suffix in (".yaml", ".yml") else new
        )
        if new != text:
            path.write_text(new, encoding="utf-8")
            changed.append(path.relative_to(root).as_posix())
    return changed


def _files(root: Path) -> Iterator[tuple[Path, tuple[str, ...]]]:
    for place, own in PLACES:
        for path in sorted(root.glob(place)):
            if path.is_file():
                yield path, (*own, *NAMED)


def _with(match: re.Match[str], version: str) -> str:
    start, end = (place - match.start() for place in match.span(1))
    return match[0][:start] + version + match[0][end:]


# The list of changes for Artifact Hub: the entries for the version in CHANGELOG.md.


def _notes(root: Path, version: str) -> list[dict[str, str]]:
    text = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    found = re.search(
        rf"^#+ \[?v?{re.escape(version)}\b.*\n([\s\S]*?)(?=^#+ \[?v?\d|\Z)", text, re.MULTILINE
    )
    entries = re.findall(r"^- (.+(?:\n  .+)*)", found[1], re.MULTILINE) if found else []
    entries = [
        re.sub(r"\[([^\]]+)\]\([^)]+\)", r"\1", entry) for entry in entries
    ]  # remove links, which would be broken on Artifact Hub
    return [
        {"kind": _kind(entry), "description": " ".join(entry.replace("`", "").split())}
        for entry in entries
    ]


def _kind(entry: str) -> str:
    first = re.sub(r"\W", "", entry.split(maxsplit=1)[0]).lower()
    kinds = {
        "fixed": "fixed",
        "changed": "changed",
        "removed": "removed",
        "deprecated": "deprecated",
    }
    return kinds.get(first, "security" if first == "security" else "added")


def _with_notes(text: str, notes: list[dict[str, str]], *, stamp: bool) -> str:
    """Replace the list of changes for Artifact Hub if the file contains one."""
    if not notes:
        return text
    told = yaml.safe_dump(notes, sort_keys=False, allow_unicode=True, width=140)
    block = "".join(f"      {line}\n" for line in told.splitlines())
    text = re.sub(
        r"(?m)^    artifacthub\.io/changes: \|\n(?:      .*\n)+",
        lambda _: f"    artifacthub.io/changes: |\n{block}",
        text,
    )
    listed = "".join(f"  {line}\n" for line in told.splitlines())
    text = re.sub(r"(?m)^changes:\n(?:  .*\n)+", lambda _: f"changes:\n{listed}", text)
    if stamp:
        today = datetime.now(UTC).strftime("%Y-%m-%dT00:00:00Z")
        text = re.sub(r'(?m)^createdAt: ".*"$', f'createdAt: "{today}"', text)
    return text


def _check(tag: str) -> int:
    wanted = tag.removeprefix("v")
    wrong = [
        f"{path}: {name}" for path, names in versions().items() for name in sorted(names - {wanted})
    ]
    for line in wrong:
        sys.stderr.write(f"{line}, not {wanted}\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
