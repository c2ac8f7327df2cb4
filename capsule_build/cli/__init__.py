"""The command line: it parses and prints, and decides nothing."""
