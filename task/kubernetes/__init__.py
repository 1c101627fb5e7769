"""Kubernetes: kubeconfig, client, and what is read of a cluster and written to it."""
