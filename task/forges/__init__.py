"""Pull requests: one file per forge. `client` contains the shared parts, and `proposal` builds each
request's title and body.
"""
