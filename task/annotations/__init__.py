"""Turns the annotations and custom resources of Applications into subscriptions."""
