"""Print the release notes: the entry in CHANGELOG.md, and how to verify signatures and provenance.

    python3 -m scripts.release_notes v1.2.0

This script only needs Python, because the job that publishes a release does not install anything.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROJECT = "argocd-image-update/image-update"
# The files of a release, by the names under which the release job signs them.
MANIFESTS = {
    "tekton-task.yaml": "tekton/task/image-update/image-update.yaml",
    "tekton-stepaction.yaml": "tekton/stepaction/image-update/image-update.yaml",
    "argo-workflowtemplate.yaml": "argo-workflows/image-update/manifests.yaml",
    "argo-clusterworkflowtemplate.yaml": "argo-workflows/image-update-cluster/manifests.yaml",
}
CHECKS = """
## Check the signatures

Images, the Tekton bundle, and the attached manifests are signed by this repository's release workflow, without a long-lived
key. To verify them, use [cosign](https://docs.sigstore.dev/cosign/system_config/installation/) 3:

```sh
identity=https://github.com/{project}/.github/workflows/release.yml@refs/tags/{tag}
issuer=https://token.actions.githubusercontent.com
for image in image-update:{tag} image-update:{tag}-action image-update/bundle:{tag}; do
  cosign verify "ghcr.io/argocd-image-update/$image" --certificate-identity "$identity" --certificate-oidc-issuer "$issuer"
done
cosign verify-blob tekton-task.yaml --bundle tekton-task.yaml.sigstore.json \\
  --certificate-identity "$identity" --certificate-oidc-issuer "$issuer"
```

The provenance shows which commit and workflow a file was built from. To verify it, use [gh](https://cli.github.com):

```sh
gh attestation verify oci://ghcr.io/{project}:{tag} --repo {project}
gh attestation verify oci://ghcr.io/{project}:{tag} --repo {project} --predicate-type https://spdx.dev/Document/v2.3
gh attestation verify tekton-task.yaml --repo {project}
```

PyPI shows the provenance next to each file of the package.
"""


def notes(tag: str, root: Path = ROOT) -> str:
    """Return the release notes for a tag. Raises `ValueError` if the changelog has no entry for the
    tag.
    """
    version = tag.removeprefix("v")
    text = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    entry = rf"^## \[?v?{re.escape(version)}\b.*\n([\s\S]*?)(?=^## |\Z)"
    found = re.search(entry, text, re.MULTILINE)
    if found is None:
        raise ValueError(f"CHANGELOG.md has no entry for {version}")
    # A release page is not a file in the repository, so its links must be full URLs.
    link = rf"\1https://github.com/{PROJECT}/blob/{tag}/"
    changes = re.sub(r"(\]\()(?!https?://|#)", link, found[1].strip())
    return f"{changes}\n{CHECKS.format(project=PROJECT, tag=tag)}"


if __name__ == "__main__":
    sys.stdout.write(notes(sys.argv[1]))
