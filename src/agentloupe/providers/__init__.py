"""Adapters to models: clients that are wrapped, providers that forks ask, and models that run on this machine."""
