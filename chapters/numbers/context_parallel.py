"""Where the numbers of context_parallel.md come from. Each part runs where its section ends."""
