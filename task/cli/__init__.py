"""The command-line interface. Most commands have their own module."""
