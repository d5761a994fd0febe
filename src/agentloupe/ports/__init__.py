"""What adapters implement and everybody stands on: protocols, the drivers of a call, values as JSON."""
