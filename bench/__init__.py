"""The figures: what the command costs, compared with what people do today. Both sides are measured in one run."""
