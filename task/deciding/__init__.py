"""Decides, without asking anybody: questions, facts, verdicts, holds."""
