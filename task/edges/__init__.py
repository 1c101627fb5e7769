"""Effects, and nothing else: the only code that starts processes, sends requests and writes files.

An edge does one thing and translates: the world's failure becomes one of our named errors.
"""
