"""The commands: grade a class, check one notebook, export for platforms; what a terminal shows."""
