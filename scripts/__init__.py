"""Maintenance scripts that generate parts of the manifests and of the documentation from
the code.
"""
