"""Screens as text: what a person sees, one module a command."""
