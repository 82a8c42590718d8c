"""What the model has already been given is not given again: repeated blocks, repeated parts of texts."""
