"""Texts that users may write as Go templates: commit messages and branch names."""
