"""May this tag go in? Pure: no files, no network, no clock."""
