"""Kubernetes: kubeconfig, a client, and the objects that are read and written in a cluster."""
