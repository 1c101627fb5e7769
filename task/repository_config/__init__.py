"""`.image-update/config`: what a GitOps repository requires of commits,
requests and freezes for its Applications.
"""
