"""An app and its migration from one repository, each with its own rule and entry: from command line to branch."""

from pathlib import Path

import pytest
from runs import WEB, application, arguments, manifest
from support import bare_repo, image_update, show

TARGETS = {
    "kustomization": (
        "apps/a/kustomization.yaml",
        "images:\n- name: web\n  newName: {0}\n  newTag: {1}\n- name: web-db\n  newName: {0}\n  newTag: {2}\n",
    ),
    "": ("apps/a/.argocd-source-a.yaml", "kustomize:\n  images:\n  - web={0}:{1}\n  - web-db={0}:{2}\n"),
    "manifests": (
        "apps/a/pods.yaml",
        "apiVersion: v1\nkind: Pod\nspec:\n  containers:\n  - image: web-db:{2}\n  - image: web:{1}\n",
    ),
}


@pytest.mark.parametrize("target", TARGETS)
def test_each_alias_has_its_own_tag(tmp_path: Path, target: str) -> None:
    path, text = TARGETS[target]
    beside = {"apps/a/kustomization.yaml": "resources: []\n"}
    repo = bare_repo(tmp_path, {**beside, path: text.format(WEB, "1.0.0", "1.0.0")})
    given = {"image_list": f"app={WEB}:~1.0, db={WEB}:^1", "write_back_target": target}
    key = "manifests" if target == "manifests" else "kustomize"
    names = {f"app.{key}.image_name": "web", f"db.{key}.image_name": "web-db"}
    apps = manifest(tmp_path, application("a", repo, **given, **names))
    for tag, ours, theirs in [("1.1.0", "1.0.0", "1.1.0"), ("1.0.1", "1.0.1", "1.1.0"), ("1.2.0", "1.0.1", "1.2.0")]:
        first = image_update(*arguments(apps, image=f"{WEB}:{tag}"))
        assert first.code == 0, first.stderr
        assert show(repo, "main", path) == text.format(WEB, ours, theirs)
        again = image_update(*arguments(apps, image=f"{WEB}:{tag}")).json
        assert (again["status"], again["commits"]) == ("unchanged", [])
