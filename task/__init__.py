"""Image Update: writes the version of a newly built image to Git, for every Argo CD Application that
tracks it.

It is the pipeline step after the build. It finds the Applications by their Argo CD Image Updater
(AIU) annotations, and checks the tag against their rules.
"""

__version__ = "0.1.0"
PROJECT = "https://github.com/argocd-image-update/image-update"
DOCS = f"{PROJECT}/blob/v{__version__}/docs"
