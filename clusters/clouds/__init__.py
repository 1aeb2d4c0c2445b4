"""What a launch needs of the place where machines stand, one module per kind of place."""
