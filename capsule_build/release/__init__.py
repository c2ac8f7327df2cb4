"""From a folder of bundles to something that a stranger can trust: provenance, signatures, verification."""
