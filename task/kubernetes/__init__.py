"""Kubernetes: kubeconfig and a client for the objects that are read and written in a cluster."""
