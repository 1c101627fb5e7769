"""The command-line interface. `update` contains `plan` and the commands that write to Git; every
other command has its own module.
"""
