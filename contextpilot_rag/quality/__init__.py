"""How good answers were, as users rate them; and whether alignment is worth it by that."""
