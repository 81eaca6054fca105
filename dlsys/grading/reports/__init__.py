"""What a run writes, for people and for platforms."""
