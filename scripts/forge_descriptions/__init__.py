"""Write `tests/data/forges/*.json`: descriptions of the requests that we make, taken from the
forges' own API descriptions.

Run `PACKAGES=folder python -m scripts.forge_descriptions [forge…]`, with each package in `SOURCES`
unpacked into its own subfolder. Each file contains the operations that we use, with their query
parameters and body schemas. `github.graphql` contains the parts of GitHub's GraphQL schema that we
use. Descriptions and examples are left out.
"""
