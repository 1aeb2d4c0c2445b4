"""Commands about launches, and what they share: ``run`` launches, the others are named by their command."""
