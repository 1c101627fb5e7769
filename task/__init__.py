"""Image Update: writes the version of a newly built image to Git, for every Argo CD Application that
tracks it.

It is the step of a pipeline that follows the build. It finds the Applications by the annotations of
Argo CD Image Updater (AIU), and checks the tag against their rules.
"""

__version__ = "0.1.0"
PROJECT = "https://github.com/argocd-image-update/image-update"
DOCS = f"{PROJECT}/blob/v{__version__}/docs"
