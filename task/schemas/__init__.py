"""The JSON Schemas of what the command prints; shipped with the package."""
