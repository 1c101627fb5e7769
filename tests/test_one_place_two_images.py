"""Two entries that write different versions to one place in one run: what lands, and what the run says."""

from pathlib import Path
from typing import Any

import pytest
from runs import WEB, application, arguments, manifest
from support import bare_repo, image_update, show

CART = "ghcr.io/acme/cart"
VALUES = "apps/a/values.yaml"
KEY = {"write_back_target": "helmvalues", "web.helm.image_tag": "image.tag", "cart.helm.image_tag": "image.tag"}
BOTH = f"{WEB}:1.1.0 {CART}:2.0.0"


def applications(repo: Path, case: str) -> list[dict[str, Any]]:
    if case == "one Application":
        return [application("a", repo, image_list=f"web={WEB}, cart={CART}", **KEY)]
    two = [
        application(name, repo, image_list=f"{alias}={alias_image}", **KEY)
        for name, alias, alias_image in (("a", "web", WEB), ("b", "cart", CART))
    ]
    two[1]["spec"]["source"]["path"] = "apps/a"
    return two


@pytest.mark.parametrize("command", ["run", "plan"])
@pytest.mark.parametrize("case", ["one Application", "two Applications"])
def test_the_second_image_is_an_error_and_does_not_replace_the_first(tmp_path: Path, case: str, command: str) -> None:
    repo = bare_repo(tmp_path, {"apps/a/Chart.yaml": "name: a\n", VALUES: "image:\n  tag: 1.0.0\n"})
    apps = manifest(tmp_path, *applications(repo, case))
    done = image_update(command, *arguments(apps, image=BOTH)[1:])
    assert done.code == 3
    # `cart` comes before `web` in the order of the entries of one Application
    first, second = done.json["decisions"]
    written, refused = (first, second) if first["verdict"] == "update" else (second, first)
    assert (refused["verdict"], refused["rule"]) == ("error", "target")
    assert refused["because"].startswith(f"{VALUES}: image.tag gets {written['candidate']} for ")
    assert written["image"] in refused["because"]
    if command == "run":
        assert show(repo, "main", VALUES) == f"image:\n  tag: {written['candidate']}\n"


def test_two_applications_may_write_the_same_version_to_one_place(tmp_path: Path) -> None:
    repo = bare_repo(tmp_path, {"apps/a/Chart.yaml": "name: a\n", VALUES: "image:\n  tag: 1.0.0\n"})
    apps = applications(repo, "two Applications")
    apps[1]["metadata"]["annotations"] = apps[0]["metadata"]["annotations"]
    done = image_update(*arguments(manifest(tmp_path, *apps)))
    assert (done.code, done.json["counts"]["updated"]) == (0, 2)
    assert show(repo, "main", VALUES) == "image:\n  tag: 1.1.0\n"
