"""Image Update: the deployment step that follows an image build.

A built image reference comes in; the Argo CD Applications that ask for it (by
the annotations of Argo CD Image Updater) get one commit per repository.
"""

__version__ = "0.1.0"
