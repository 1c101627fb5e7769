"""Pull requests: one file per forge. `client` has the shared parts, `proposal` the
request's text.
"""
