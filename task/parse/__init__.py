"""Outside notation in, our nouns out. Pure: no files, no network, no clock."""
