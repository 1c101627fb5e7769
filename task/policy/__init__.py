"""Decides whether a tag may go in: strategies, filters, version ranges and the order of builds.

Pure.
"""
