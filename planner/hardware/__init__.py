"""GPUs, links between them, and what both achieve: tables of facts and the formulas over them."""
