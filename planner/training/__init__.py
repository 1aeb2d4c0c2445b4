"""What a training is made of: framework habits, number formats, adapters, execution, defaults."""
