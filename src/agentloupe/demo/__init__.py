"""The demo: sample agents, their models and what is done with them."""
