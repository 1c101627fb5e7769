"""Renders the texts that users can customize with Go templates: commit messages and branch
names.
"""
