"""Pull requests: one file for each forge, what they share in `client`, the text of a request in `proposal`."""
