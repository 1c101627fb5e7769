"""What maintainers run: rows of manifests and documentation made from the code."""
