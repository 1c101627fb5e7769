"""Follow-up on landed commits: rollouts, deployments, and comments."""
