"""Writes the ClusterWorkflowTemplate: the WorkflowTemplate with another kind.

Run `python -m scripts.cluster_template`.
"""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TEMPLATE = ROOT / "argo-workflows/image-update/manifests.yaml"
CLUSTER = ROOT / "argo-workflows/image-update-cluster/manifests.yaml"
NOTE = "# Generated from ../image-update/manifests.yaml by `python -m scripts.cluster_template`: do not edit.\n"


def main() -> None:
    """Write the ClusterWorkflowTemplate again, from the WorkflowTemplate."""
    CLUSTER.parent.mkdir(parents=True, exist_ok=True)
    CLUSTER.write_text(rendered(), encoding="utf-8")


def rendered(source: Path = TEMPLATE) -> str:
    """Return the text of the ClusterWorkflowTemplate."""
    text = source.read_text(encoding="utf-8")
    return NOTE + text.replace("\nkind: WorkflowTemplate\n", "\nkind: ClusterWorkflowTemplate\n", 1)


if __name__ == "__main__":
    main()
