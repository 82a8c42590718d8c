"""Groups of blocks in texts that name them as such. Nothing is ever guessed."""
