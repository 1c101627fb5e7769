"""Turns ApplicationSets into Applications, as Argo CD's controller does. Pure: Git is read through a Protocol."""
