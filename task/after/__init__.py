"""What follows when something has landed: rollouts, deployments, comments."""
