"""Public charts with a digest next to the tag: no update succeeds if Helm renders another image."""

import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from editors.editing import DIGEST, OTHER, OVERRIDE, PATHS, edit, plain, read, source, target
from support import DATA, needs

from task.errors import TargetError
from task.image import parse_image
from task.model import File, Files, Keys, Parameter, Target

TABLE = yaml.safe_load((DATA / "chart_digests.yaml").read_text())
HOW = {
    "beside": "{{ %(name)s }}:{{ %(tag)s }}{{ with %(digest)s }}@{{ . }}{{ end }}",
    "instead": "{{ %(name)s }}{{ if %(digest)s }}@{{ %(digest)s }}{{ else }}:{{ %(tag)s }}{{ end }}",
    "sha": "{{ %(name)s }}:{{ %(tag)s }}{{ with %(digest)s }}@sha256:{{ . }}{{ end }}",
    "sha-instead": "{{ %(name)s }}{{ if %(digest)s }}@sha256:{{ %(digest)s }}{{ else }}:{{ %(tag)s }}{{ end }}",
}
OLD = OTHER.removeprefix("sha256:")


@dataclass(frozen=True)
class Case:
    """One chart, how its image is specified, and the incoming build."""

    row: dict[str, Any]
    override: bool
    annotated: bool
    build: str

    @property
    def values(self) -> str:
        """The chart's values with the old digest."""
        return str(self.row["values"]).replace("DIGEST", OLD).replace("OTHER", "c" * 64)

    @property
    def template(self) -> str:
        """The template of the chart's image."""
        keys = {
            key: f".Values.{self.row[key]}" for key in ("name", "tag", "digest") if key in self.row
        }
        return str(self.row.get("image") or HOW[self.row["how"]] % keys)

    @property
    def aim(self) -> Target:
        """The target of the update."""
        # a parameter contains the full image name, which is wrong if the chart prepends a registry
        name = "" if self.override and "registry" in self.values else self.row["name"]
        keys = Keys(
            name=name,
            tag=self.row["tag"],
            digest=self.row.get("digest", "") if self.annotated else "",
        )
        kind, values = (
            ("helm-override", (PATHS["helmvalues"],)) if self.override else ("helmvalues", ())
        )
        return target(kind, "ghcr.io/acme/web", keys, values=values)  # type: ignore[arg-type]

    def written(self) -> Files | None:
        """Return all files after the update, or None if the update is an error."""
        files = {PATHS["helmvalues"]: File(self.values)}
        try:
            read(files, self.aim)
            after = {**files, **edit(files, self.aim, self.build)[0]}
        except TargetError:
            return None
        said, image = read(after, self.aim), parse_image(self.build)
        assert (said.tag, said.digest, said.sound) == (image.tag, image.digest, True)
        return after


CASES = [
    Case(row, override, annotated, f"ghcr.io/acme/web:1.5.0{digest}")
    for row in TABLE
    for override in (False, True)
    for annotated in (False, True)
    for digest in ("", f"@{DIGEST}")
]


def rendered(folder: Path, written: dict[int, Files]) -> dict[int, str]:
    """Return Helm's output for each case, with the override file's parameters as flags."""
    values, flags = [], []
    (folder / "templates").mkdir()
    (folder / "Chart.yaml").write_text("apiVersion: v2\nname: charts\nversion: 0.1.0\n")
    for number, files in written.items():
        text = "".join(f"  {line}\n" for line in files[PATHS["helmvalues"]].text.splitlines())
        values.append(f"case{number}:\n{text}")
        template = f"{{{{- with dict `Values` .Values.case{number} }}}}\n{number}: {CASES[number].template}\n{{{{- end }}}}"
        (folder / "templates" / f"{number}.yaml").write_text(template)
        listed = plain(files[OVERRIDE].text)["helm"]["parameters"] if OVERRIDE in files else ()
        flags += [f"--set-string=case{number}.{one['name']}={one['value']}" for one in listed]
    (folder / "values.yaml").write_text("".join(values))
    done = subprocess.run(
        [*needs("helm"), "template", "x", str(folder), *flags], capture_output=True, check=True
    )
    return {
        key: value for one in yaml.safe_load_all(done.stdout) if one for key, value in one.items()
    }


def test_no_successful_update_renders_another_image(tmp_path: Path) -> None:
    assert len(TABLE) >= 40
    written = {
        number: files for number, case in enumerate(CASES) if (files := case.written()) is not None
    }
    images = rendered(tmp_path, written)
    assert images.keys() == written.keys()
    for number, image in images.items():
        case, found, wanted = CASES[number], parse_image(image), parse_image(CASES[number].build)
        assert found.digest == wanted.digest, (case, image)
        assert found.tag in ("", wanted.tag) if found.digest else found.tag == wanted.tag, (
            case,
            image,
        )
    for number, case in enumerate(CASES):
        assert (number in written) == (case.annotated and "digest" in case.row), case


@pytest.mark.parametrize(
    ("spec", "refused"),
    [
        ({"parameters": (Parameter("image.digest", OTHER),)}, True),
        ({"parameters": (Parameter("image.digest", ""),), "values": f"image: {{digest: '{OTHER}'}}"}, False),
        ({"parameters": (Parameter("image.digest", "null"),), "values": f"image: {{digest: '{OTHER}'}}"}, False),
        ({"values": f"image: {{digest: '{OTHER}'}}"}, True),
        ({"values": '{"image": {"digest": null}}'}, False),
        ({"values": "image: {digest: ''}", "value_files": {"prod.yaml": f"image: {{digest: '{OTHER}'}}"}}, False),
        ({"value_files": {"values.yaml": f"image: {{digest: '{OTHER}'}}", "prod.yaml": "image: {digest: ~}"}}, False),
        ({"value_files": {"values.yaml": "image: {digest: ''}", "prod.yaml": f"image: {{digest: '{OTHER}'}}"}}, True),
        ({"value_files": {"charts/image/values.yaml": f"digest: '{OTHER}'"}}, True),  # "image"
        ({"value_files": {"values.yaml": f"other: {{digest: '{OTHER}'}}\ndigest: '{OTHER}'"}}, False),
        ({"value_files": {"values.yaml": f"image: {{tag: 1, checksum: '{OTHER}', initTag: 1, initDigest: '{OTHER}'}}"}},
         False),
        ({"value_files": {"values.yaml": f"image: {{hash: '{OTHER}'}}", "prod.yaml": "image: {hash: ''}"}}, False),
        ({"value_files": {"values.yaml": "image: [", "prod.yaml": ""}}, False),  # invalid file
    ],
)  # fmt: skip
@pytest.mark.parametrize("kind", ["helm-override", "helmvalues"])
def test_the_effective_digest_follows_the_order_of_argo_cd(
    kind: Any, spec: dict[str, Any], *, refused: bool
) -> None:
    given = dict(spec)
    layers = given.pop("value_files", {})
    aim = target(
        kind,
        keys=Keys(tag="image.tag"),
        path="written.yaml",
        source=source(**given),
        values=tuple(layers),
    )
    files = {path: File(text) for path, text in layers.items()}
    if not refused:
        assert read(files, aim).tag == ""
        return
    with pytest.raises(
        TargetError,
        match=r"image\.digest is 'sha256:b+', so a chart that reads it ignores a new image",
    ):
        read(files, aim)


@pytest.mark.parametrize(
    ("key", "before", "after"),
    [
        ("image.digest", '""', DIGEST),
        ("image.digest", OTHER, DIGEST),
        ("image.digest", OLD, "a" * 64),  # the chart prepends `sha256:`
        ("image.sha", '""', "a" * 64),
        ("image.sha", OTHER, DIGEST),
    ],
)
def test_the_digest_is_written_in_its_existing_format(key: str, before: str, after: str) -> None:
    name = key.rpartition(".")[2]
    path = PATHS["helmvalues"]
    aim = target("helmvalues", keys=Keys(tag="image.tag", digest=key))
    files = edit(
        {path: File(f"image:\n  tag: 1.4.2\n  {name}: {before}\n")},
        aim,
        f"ghcr.io/acme/api:1.5.0@{DIGEST}",
    )[0]
    assert plain(files[path].text) == {"image": {"tag": "1.5.0", name: after}}
    assert read(files, aim).digest == DIGEST
