"""`.image-update/config`: what a GitOps repository says about the commits, requests and freezes of its Applications."""
