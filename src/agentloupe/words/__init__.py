"""What is said: frozen data with nearly no dependencies. The lowest layer."""
