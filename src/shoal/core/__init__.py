"""Protocols, and the values that flow between them; no algorithms."""
