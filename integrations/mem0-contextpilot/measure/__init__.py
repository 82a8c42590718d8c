"""What the README's table is measured with; the tests use it, too."""
