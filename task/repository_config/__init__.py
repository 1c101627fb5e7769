"""`.image-update/config`: a GitOps repository's rules for commits, pull requests, and freezes."""
