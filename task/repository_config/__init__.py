"""`.image-update/config`: a GitOps repository's rules for commits, requests,
and freezes.
"""
