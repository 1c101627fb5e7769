"""Writes `tests/data/forges/*.json`: the requests that we make, from the forges' own descriptions.

Run `PACKAGES=folder python -m scripts.forge_descriptions [forge…]`, with the packages in `SOURCES` unpacked in that
folder, each in a folder with its own name. A file has the operations that we use, the parameters of their queries and
the schemas of their bodies. `github.graphql` has what we use of GitHub's GraphQL schema. Descriptions and examples are
left out.
"""
