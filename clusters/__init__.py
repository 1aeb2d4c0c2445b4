"""Clusters touch the world: what is rented, probed and given back lives here."""
