"""The figures: what the command costs, against what people do today, both sides measured in one run."""
