"""What a configuration may hold, how it is composed, and the names it gives."""
