"""Pure code for decisions: questions, facts, verdicts, and holds."""
