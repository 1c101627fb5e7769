"""Argo CD: its API, its repository secrets, and the rollouts that follow a commit."""
