"""Pure code for making decisions: questions, facts, verdicts, and holds."""
