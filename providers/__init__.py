"""Providers read prices: one adapter per file, and the catalog that is shipped inside the package."""
