"""Git: the command line, logins, signatures, and repositories without a checkout."""
