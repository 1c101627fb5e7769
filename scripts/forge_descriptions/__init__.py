"""Writes `tests/data/forges/*.json`: the requests that forges describe themselves, as far as we make them.

`PACKAGES=folder python -m scripts.forge_descriptions [forge…]`, with the packages of `SOURCES` unpacked in that folder,
each in a folder of its own name. A file holds the operations that we use, the parameters of their queries and the
schemas of their bodies; `github.graphql` holds what we use of GitHub's GraphQL schema. Descriptions
and examples are left out.
"""
