"""Decides whether a tag is admitted: strategies, filters, version ranges, and build order.

Pure.
"""
