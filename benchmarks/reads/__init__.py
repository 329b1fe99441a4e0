"""What a read costs: perks, and leaderboards."""
