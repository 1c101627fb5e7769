"""Pull requests: one file for each forge,
with the shared parts in `client` and a request's text in `proposal`.
"""
