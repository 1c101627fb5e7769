"""The exchanges of identities for tokens described on the page, against a fake Dex and a fake
octo-sts.
"""

import json
import re
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import yaml
from support import ROOT, needs

from scripts.transcripts import blocks

PAGE = (ROOT / "docs/how-to/no-stored-secret.md").read_text(encoding="utf-8")
WANTED = {
    "connector_id": "github-actions",
    "grant_type": "urn:ietf:params:oauth:grant-type:token-exchange",
    "scope": "openid email profile federated:id",
    "requested_token_type": "urn:ietf:params:oauth:token-type:access_token",
    "subject_token_type": "urn:ietf:params:oauth:token-type:id_token",
}  # as in argo-cd/docs/operator-manual/user-management/github-actions.md


class Exchange(BaseHTTPRequestHandler):
    """Responds like Dex's token endpoint, like octo-sts, and like GitHub's identity endpoint."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        asked = {name: one for name, (one,) in parse_qs(body).items()}
        good = asked == {**WANTED, "subject_token": "identity"}
        user = self.headers["Authorization"] == "Basic YXJnby1jZC1jbGk6"
        self._say(200 if good and user else 401, {"access_token": "of-argocd", "expires_in": 300})

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        asked = {name: one for name, (one,) in parse_qs(url.query).items()}
        if url.path == "/sts/exchange":
            known = asked == {"scope": "acme/gitops", "identity": "web"}
            good = known and self.headers["Authorization"] == "Bearer identity"
            self._say(200 if good else 403, {"token": "ghs_of-octo-sts"})
        else:
            good = self.headers["Authorization"] == "bearer of-the-runner"
            self._say(200 if good and asked["audience"] else 401, {"value": "identity"})

    def _say(self, code: int, told: Any) -> None:
        body = json.dumps(told).encode()
        self.send_response(code)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_args: Any) -> None:
        pass


@pytest.fixture
def address() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), Exchange)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def shown() -> list[Any]:
    """The YAML documents on the page."""
    found = (one.code for one in blocks(PAGE) if one.language == "yaml")
    return [document for text in found for document in yaml.safe_load_all(text)]


def exchange(address: str) -> str:
    (found,) = (one.code for one in blocks(PAGE) if one.language == "bash")
    return found.replace("https://argocd.example.com", address)


def ran(script: str, folder: Path, **env: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        ["bash", "-e", "-c", script],
        cwd=folder,
        env={"PATH": "/usr/bin:/bin", **env},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.servers
def test_argo_cd_issues_a_token_for_the_identity_of_the_job(address: str, tmp_path: Path) -> None:
    needs("curl")
    needs("jq")
    (tmp_path / "exchange.sh").write_text(exchange(address))
    (steps,) = (one for one in shown() if isinstance(one, list))
    script = steps[0]["run"]
    output = tmp_path / "output"
    env = {
        "ACTIONS_ID_TOKEN_REQUEST_TOKEN": "of-the-runner",
        "ACTIONS_ID_TOKEN_REQUEST_URL": f"{address}/?api-version=2.0",
        "GITHUB_OUTPUT": str(output),
    }
    done = ran(script, tmp_path, **env)
    assert (done.returncode, done.stdout) == (0, "::add-mask::of-argocd\n"), done.stderr
    assert output.read_text() == "token=of-argocd\n"
    used = steps[1]["with"]["argocd-auth-token"]
    assert used == f"${{{{ steps.{steps[0]['id']}.outputs.token }}}}"
    refused = ran(script, tmp_path, **{**env, "ACTIONS_ID_TOKEN_REQUEST_TOKEN": "of-another"})
    assert (refused.returncode == 0, "of-argocd" in refused.stdout) == (False, False)


@pytest.mark.servers
def test_the_gitlab_job_gets_tokens_for_argo_cd_and_github(address: str, tmp_path: Path) -> None:
    needs("curl")
    needs("jq")
    (tmp_path / "exchange.sh").write_text(exchange(address))
    (jobs,) = (one for one in shown() if isinstance(one, dict) and "tokens" in one)
    script = "\n".join(jobs["tokens"]["script"]).replace("https://octo-sts.dev", address)
    done = ran(script, tmp_path, FOR_ARGOCD="identity", FOR_GITHUB="identity")
    assert done.returncode == 0, done.stderr
    named = dict(re.findall(r"--(argocd-auth-token|git-password)-file (\S+)", str(jobs["deploy"])))
    texts = {name: (tmp_path / path).read_text() for name, path in named.items()}
    assert texts == {"argocd-auth-token": "of-argocd\n", "git-password": "ghs_of-octo-sts\n"}


@pytest.mark.servers
def test_a_pod_gets_a_token_for_its_projected_identity(address: str, tmp_path: Path) -> None:
    needs("curl")
    (task,) = (one for one in shown() if isinstance(one, dict) and one.get("kind") == "Task")
    (step,) = task["spec"]["steps"]
    for name in ("identity", "token"):
        (tmp_path / name).mkdir()
    (tmp_path / "identity/token").write_text("identity")
    script = step["script"].replace("https://octo-sts.dev", address)
    script = re.sub(r"(?<= )/(identity|token)/", rf"{tmp_path}/\1/", script)
    done = ran(script, tmp_path, SCOPE="acme/gitops", IDENTITY="web")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "token/token").read_text().strip() == "ghs_of-octo-sts"
    assert (tmp_path / "token/token").stat().st_mode & 0o077 == 0
    assert ran(script, tmp_path, SCOPE="acme/other", IDENTITY="web").returncode != 0


def test_the_page_specifies_one_audience_for_each_exchange() -> None:
    assert set(re.findall(r"aud(?:ience)?: \"?([\w.:/-]+)", PAGE)) == {
        "octo-sts.dev",
        "https://argocd.example.com",
    }
