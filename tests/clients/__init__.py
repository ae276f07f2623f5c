"""Clients people use, each behind one face, and which of them are tried at what."""
