"""A Sigstore instance on loopback: OIDC provider, Fulcio with a CT log, Rekor v1 and v2, timestamp authority.

Everything that it signs, it signs for real, with keys of its own: what it makes can be verified by whoever is
given its trusted root. It can be told to fail, to hang, and to sign what it should not.
"""

from tests.sigstore_instance.instance import CI_SECRET, IDENTITY, ISSUER, Instance, RefusalError, running

__all__ = ["CI_SECRET", "IDENTITY", "ISSUER", "Instance", "RefusalError", "running"]
