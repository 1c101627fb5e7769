"""Decides whether a tag is admitted: strategies, filters, version ranges, and the order of builds.

Pure.
"""
