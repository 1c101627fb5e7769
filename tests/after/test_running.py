"""A synced and healthy Application is not enough: the image must be running."""

from typing import Any

import pytest
from fakes.argocd_states import NEW, OLD, at, live_application, operated

from task.after.expecting import Expected, expecting
from task.argocd.rollout import Rollout
from task.image import parse_image

WEB = "ghcr.io/acme/web"
DIGEST, OTHER = f"sha256:{'a' * 64}", f"sha256:{'b' * 64}"
HEALTHY = Rollout("synced-and-healthy", "synced and healthy")
RUNS, ANOTHER, NOTHING = "synced-and-healthy", "failed", "warning"

# (written image, status.summary.images, rollout result)
LIVE = [
    (f"{WEB}:1.1.0", [f"{WEB}:1.1.0"], RUNS),
    (
        f"{WEB}:1.1.0",
        ["nginx:1", f"{WEB}:1.0.0", f"{WEB}:1.1.0"],
        RUNS,
    ),  # an old pod is still terminating
    (f"{WEB}:1.1.0", [f"{WEB}:1.0.0"], ANOTHER),
    (f"{WEB}:1.1.0", [f"{WEB}:1.1"], ANOTHER),
    (f"{WEB}:1.1.0", [f"{WEB}:1.1.0@{DIGEST}"], RUNS),
    (f"{WEB}:1.1.0", [f"{WEB}@{DIGEST}"], ANOTHER),
    (f"{WEB}:1.1.0@{DIGEST}", [f"{WEB}:1.1.0@{DIGEST}"], RUNS),
    (f"{WEB}:1.1.0@{DIGEST}", [f"{WEB}@{DIGEST}"], RUNS),
    (f"{WEB}:1.1.0@{DIGEST}", [f"{WEB}:1.1.0@{OTHER}"], ANOTHER),
    (f"{WEB}:1.1.0@{DIGEST}", [f"{WEB}:1.1.0"], RUNS),  # the target contains no digest
    (f"{WEB}:1.1.0@{DIGEST}", [f"{WEB}@sha256"], ANOTHER),  # how Kustomize 4.5 parses tag@digest
    (f"{WEB}@{DIGEST}", [f"{WEB}@{DIGEST}"], RUNS),
    (f"{WEB}@{DIGEST}", [f"{WEB}:1.0.0"], ANOTHER),
    ("nginx:2", ["docker.io/library/nginx:2"], RUNS),
    (f"{WEB}:1.1.0", ["quay.io/acme/web:1.0.0", "ghcr.io/acme/web-api:1.0.0"], NOTHING),
    (f"{WEB}:1.1.0", [], NOTHING),
    (f"{WEB}:1.1.0", None, NOTHING),
    (f"{WEB}:1.1.0", ["", 7, "UPPER case?"], NOTHING),
]


def item(images: object, revision: str = NEW) -> dict[str, Any]:
    state = at(
        live_application(),
        "Synced",
        "Healthy",
        revision=revision,
        compared=13,
        operation=operated(revision=revision),
    )
    state["status"]["summary"] = {"images": images}
    return state


@pytest.mark.parametrize(("written", "live", "end"), LIVE)
def test_a_rollout_succeeds_only_if_the_image_is_running(
    written: str, live: object, end: str
) -> None:
    found = expecting(
        HEALTHY, item(live), [Expected(parse_image(written), "the key", "a hint", NEW)]
    )
    assert found.state == ("synced-and-healthy" if end == NOTHING else end)
    assert bool(found.warning) == (end == NOTHING)
    if end == ANOTHER:
        assert (found.sure, found.stale, found.hint) == (False, True, "a hint")
        assert "synced and healthy, but " in found.because
        assert found.because.endswith(": check the key")
    if end == NOTHING:
        assert found.warning.endswith("check the key")


@pytest.mark.parametrize(
    ("live", "because"),
    [
        (f"{WEB}:1.1.0", ""),
        (f"{WEB}:1.1.0@{DIGEST}", ""),
        (f"{WEB}@{DIGEST}", ""),
        (
            f"{WEB}:1.1.0@{OTHER}",
            f"is running only as 1.1.0@{OTHER}, not as 1.1.0@{DIGEST}: check x",
        ),
        (f"{WEB}:1.0.0@{OTHER}", f"is running only as 1.0.0@{OTHER}, not as 1.1.0: check x"),
    ],
)
def test_the_wait_fails_if_the_running_image_has_a_different_digest_than_the_build(
    live: str, because: str
) -> None:
    wanted = Expected(parse_image(f"{WEB}:1.1.0"), "x", revision=NEW, digest=DIGEST)
    found = expecting(HEALTHY, item([live]), [wanted])
    assert (found.state, found.because.endswith(because)) == (
        "failed" if because else "synced-and-healthy",
        True,
    )


def test_an_image_replaced_by_kustomize_counts_as_the_original_image() -> None:
    wanted = Expected(
        parse_image(f"{WEB}:1.1.0"), "the key", revision=NEW, replaced="docker.io/library/web"
    )
    found = expecting(HEALTHY, item(["web:latest"]), [wanted])
    assert (
        found.because
        == f"synced and healthy, but {WEB} is running only as latest, not as 1.1.0: check the key"
    )


def test_a_rollout_in_progress_is_not_judged() -> None:
    going = Rollout("progressing", "the sync is running")
    assert (
        expecting(
            going,
            item([f"{WEB}:1.0.0"]),
            [Expected(parse_image(f"{WEB}:1.1.0"), "x", revision=NEW)],
        )
        is going
    )


def test_a_long_list_of_running_versions_is_truncated() -> None:
    live = [f"{WEB}:{number}" for number in range(9)]
    found = expecting(HEALTHY, item(live), [Expected(parse_image(f"{WEB}:10"), "x", revision=NEW)])
    assert found.because.endswith("is running only as 0, 1, 2, 3, 4 and 4 more, not as 10: check x")


LATER = [
    (NEW, f"{WEB}:1.2.0", "failed"),  # the same revision, so the branch is not read
    (OLD, f"{WEB}:1.2.0", "synced-and-healthy"),  # a different revision with a different version
    (OLD, f"{WEB}:1.1.0", "failed"),
    (OLD, "", "failed"),  # the current image is unknown
]


@pytest.mark.parametrize(("compared", "says", "state"), LATER)
def test_an_image_replaced_by_a_later_commit_causes_a_warning(
    compared: str, says: str, state: str
) -> None:
    now = parse_image(says) if says else None
    wanted = Expected(parse_image(f"{WEB}:1.1.0"), "x", revision=NEW, current=lambda _item: now)
    found = expecting(HEALTHY, item([f"{WEB}:1.2.0"], compared), [wanted])
    assert found.state == state
    assert found.warning == (
        f"{WEB} has since been set to 1.2.0 instead of 1.1.0" if state != "failed" else ""
    )
