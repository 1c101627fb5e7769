"""Pull requests: one file per forge. `client` contains the code that all forges share, and
`proposal` builds each request's title and body.
"""
