"""Maintenance scripts that generate parts of the manifests and the documentation from the code."""
