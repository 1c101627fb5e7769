"""Pull requests: one file per forge. `client` has the shared parts, `proposal` each request's title
and body.
"""
