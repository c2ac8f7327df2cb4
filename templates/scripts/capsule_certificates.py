"""Where TLS finds certificates when the image has none where OpenSSL looks.

This module lies in the standard library of a runtime capsule, and `ssl` ends with a line that calls
`install`. What the user says (SSL_CERT_FILE, SSL_CERT_DIR) always holds, also when it names nothing; then
come OpenSSL's own defaults, then the places where other distributions keep their certificates, and last
the capsule's own bundle.
"""

import os
import sys

PLACES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/ca-bundle.pem",
    "/etc/pki/tls/cacert.pem",
    "/etc/ssl/cert.pem",
)
OWN = os.path.join(os.path.dirname(os.path.dirname(sys.base_prefix)), "share", "ca-certificates.crt")


def other_file(defaults):
    """Return the file to read when `defaults` (`ssl.get_default_verify_paths()`) holds nothing, else None."""
    if defaults.openssl_cafile_env in os.environ or defaults.openssl_capath_env in os.environ:
        return None
    if defaults.cafile is not None or _has_entries(defaults.openssl_capath):
        return None
    for path in (*PLACES, OWN):
        if os.path.isfile(path):
            return path
    return None


def _has_entries(folder):
    try:
        return bool(os.listdir(folder))
    except OSError:
        return False


def install(ssl):
    """Make `ssl`'s defaults fall back."""
    openssl_paths = ssl.get_default_verify_paths

    def get_default_verify_paths():
        found = openssl_paths()
        other = other_file(found)
        return found if other is None else found._replace(cafile=other)

    def set_default_verify_paths(self):
        super(ssl.SSLContext, self).set_default_verify_paths()
        other = other_file(openssl_paths())
        if other is not None:
            self.load_verify_locations(other)

    get_default_verify_paths.__doc__ = openssl_paths.__doc__
    set_default_verify_paths.__doc__ = ssl.SSLContext.set_default_verify_paths.__doc__
    ssl.get_default_verify_paths = get_default_verify_paths
    ssl.SSLContext.set_default_verify_paths = set_default_verify_paths
