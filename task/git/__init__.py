"""Git: the command line, credentials, signatures, and repositories without a checkout."""
