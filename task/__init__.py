"""Image Update: the deployment step that follows an image build.

It takes the reference of a built image, finds the Argo CD Applications that ask for it by the annotations of Argo CD
Image Updater (AIU), and updates them with one commit for each repository.
"""

__version__ = "0.1.0"
