"""``plan probe``: what is measured, its progress and its document."""
