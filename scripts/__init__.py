"""Programs for maintainers: they write parts of manifests and of the documentation from the code."""
