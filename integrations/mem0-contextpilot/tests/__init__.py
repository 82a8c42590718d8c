"""Tests, by promise."""
