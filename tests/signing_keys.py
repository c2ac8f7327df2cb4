"""Keys to sign with, as files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

if TYPE_CHECKING:
    from pathlib import Path

Private = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey


def write_key(folder: Path, key: Private, *, name: str = "key", password: bytes | None = None) -> Path:
    """Write a key's two halves, and return the private one's path."""
    encryption = serialization.BestAvailableEncryption(password) if password else serialization.NoEncryption()
    path = folder / f"{name}.pem"
    path.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)
    )
    public(path).write_bytes(
        key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
    )
    return path


def public(path: Path) -> Path:
    return path.with_suffix(".pub.pem")
