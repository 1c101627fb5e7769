"""Turns what Applications ask for, in annotations and custom resources, into subscriptions."""
