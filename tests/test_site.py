"""The site builds without broken links and loads nothing from other hosts, and its search finds the
right pages.
"""

import http.server
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from support import ROOT, needs

from scripts.browser import Page, browser

# What people search for, and what the first result must be.
QUESTIONS = {
    "github app": "credentials.html#a-github-app",
    "deploy key": "credentials.html#a-deploy-key-ssh",
    "why not updated": "troubleshooting.html#why-was-my-app-not-updated",
    "skip ci": "how-to/push-options.html#skip-ci",
    "rollback": "how-to/rollback.html",
    "pull request": "pull-requests.html",
    "pull request instead of push": "pull-requests.html#a-pull-request-instead-of-a-push",
    "monorepo": "how-to/monorepo.html",
    "required check": "how-to/check.html",
    "one trigger": "how-to/one-trigger.html",
    "many applications": "how-to/monorepo.html#many-applications-one-commit",
    "digest": "annotations.html#a-digest-beside-the-tag",
    "wait for rollout": "rollouts.html",
    "migrate": "from-image-updater.html",
    "ecr": "how-to/private-registries.html",
    "harbor": "how-to/private-registries.html",
    "webhook": "how-to/one-trigger.html#your-registrys-webhook",
    "timestamp": "ordering.html#a-timestamp-in-the-tag",
    "two pipelines": "ordering.html#two-pipelines",
    "notification": "observability.html#events-and-notifications",
    "approve": "pull-requests.html#approve-merge-wait",
    "dry run": "deployments.html#a-dry-run-as-a-comment",
    "protected branch": "how-to/protect-the-branches.html",
    "kustomize edit set image": "compared.html#instead-of-kustomize-edit-set-image",
}
BOX = "Array.from(document.querySelectorAll('*')).find(one => one.shadowRoot).shadowRoot"


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None: ...


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the built site. It is built from a copy, because the site builder stores its
    output next to the sources.
    """
    folder = tmp_path_factory.mktemp("site")
    shutil.copytree(ROOT / "docs", folder / "docs")
    shutil.copy(ROOT / "mkdocs.yml", folder)
    build = [
        sys.executable,
        "-m",
        "zensical",
        "build",
        "--strict",
        "--config-file",
        str(folder / "mkdocs.yml"),
    ]
    done = subprocess.run(build, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / ".cache" / "site"


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(site)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    with browser(needs("chromium")[0]) as started:
        yield started


def test_a_broken_link_fails_the_build(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text(
        "# Here\n\n[there](there.md#part), [below](#below)\n"
    )
    (tmp_path / "mkdocs.yml").write_text("site_name: x\n")
    build = [
        sys.executable,
        "-m",
        "zensical",
        "build",
        "--strict",
        "--config-file",
        str(tmp_path / "mkdocs.yml"),
    ]
    done = subprocess.run(build, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "2 issues" in done.stdout + done.stderr


def test_the_site_loads_nothing_from_other_hosts(site: Path) -> None:
    pages = {path.relative_to(site).as_posix(): path.read_text() for path in site.rglob("*.html")}
    loaded = re.compile(
        r"<(?:script|img|iframe)[^>]+src=.?https?:[^>]*>|<link[^>]+stylesheet[^>]+https?:[^>]*>"
    )
    assert {name: found for name, text in pages.items() if (found := loaded.findall(text))} == {}
    # By itself, the theme's script would load two things: the program that renders diagrams, and
    # the number of stars of a repository.
    asked = re.compile(r'class="mermaid"|data-md-component="source"')
    assert {name: found for name, text in pages.items() if (found := asked.findall(text))} == {}


def test_every_image_and_menu_entry_leads_to_a_file(site: Path) -> None:
    """The site builder checks links between pages, but not images and menu entries."""
    missing = [
        (path.name, name)
        for path in site.rglob("*.html")
        if path.name != "404.html"  # the links on this page are relative to the root
        for name in re.findall(r'(?:src|srcset|href)="([^":?#]+)(?:[?#][^"]*)?"', path.read_text())
        if not (path.parent / name).exists()
    ]
    assert missing == []


def test_the_search_shows_the_expected_result_first(page: Page, address: str) -> None:
    page.open(f"{address}index.html")
    page.until("!!document.querySelector('.md-search__button')")
    page.run("document.querySelector('.md-search__button').click()")
    page.until(f"!!{BOX}.querySelector('input')")
    answers = {}
    for question in QUESTIONS:
        page.run(f"{BOX}.querySelector('input').select()")
        page.ask("Input.insertText", text="")
        page.until(f"!{BOX}.querySelector('[role=option] mark')")  # no more old results
        page.run(f"{BOX}.querySelector('input').focus()")
        page.ask("Input.insertText", text=question)
        page.until(f"!!{BOX}.querySelector('[role=option] mark')")
        first = page.run(f"{BOX}.querySelector('[role=option]').href")
        answers[question] = re.sub(r"\?h=[^#]*", "", first).removeprefix(address)
    assert answers == QUESTIONS


def test_no_page_is_wider_than_a_phone(page: Page, address: str) -> None:
    page.reader(390, 844)
    widths = {}
    for name in ("index", "reference", "troubleshooting", "how-to/rollback", "figures"):
        page.open(f"{address}{name}.html")
        widths[name] = page.run("document.documentElement.scrollWidth")
    assert {name: width for name, width in widths.items() if width > 390} == {}


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_each_page_follows_the_color_scheme_of_the_reader(
    page: Page, address: str, scheme: str
) -> None:
    page.reader(1280, 900, scheme)
    page.open(f"{address}index.html")
    page.until(
        f"document.body.dataset.mdColorScheme === '{'slate' if scheme == 'dark' else 'default'}'"
    )
    background = page.run("getComputedStyle(document.body).backgroundColor")
    light = sum(int(part) for part in re.findall(r"\d+", background)[:3]) > 384
    assert light == (scheme == "light")
