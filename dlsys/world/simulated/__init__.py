"""Every rank in this process, one at a time, in virtual time, with every message on record."""
