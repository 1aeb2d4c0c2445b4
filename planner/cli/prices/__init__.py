"""Commands about prices: offers, refresh, differences, and rent or buy."""
