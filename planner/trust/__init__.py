"""How sure an answer is: residuals of measured runs, bands, calibration, and the words that explain."""
