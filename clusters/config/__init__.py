"""Plan -> cluster description: pure functions that return documents, and checks before anyone runs them."""
