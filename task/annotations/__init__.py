"""What Applications ask for: annotations and custom resources in, subscriptions out."""
