"""Transparency logs: a Merkle tree (RFC 6962) with signed checkpoints, and Rekor's two interfaces to one."""

from __future__ import annotations

import base64
import hashlib
import json
import threading

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, utils

from tests.sigstore_instance.keys import LogKey, b64


class Tree:
    """An append-only log: entries, proofs that they are in it, and checkpoints."""

    def __init__(self, origin: str) -> None:
        self.key = LogKey()
        self._origin = origin
        self._leaves: list[bytes] = []
        self._lock = threading.Lock()

    def append(self, body: bytes) -> tuple[int, int, bytes, list[bytes], str]:
        """Add an entry; returns its index, the tree's size, its root, the proof and a checkpoint."""
        with self._lock:
            self._leaves.append(hashlib.sha256(b"\0" + body).digest())
            index, size = len(self._leaves) - 1, len(self._leaves)
            root = _root(self._leaves)
            return index, size, root, _path(index, self._leaves), self._checkpoint(size, root)

    def _checkpoint(self, size: int, root: bytes) -> str:
        note = f"{self._origin}\n{size}\n{b64(root)}\n"
        signature = b64(self.key.id[:4] + self.key.sign(note.encode()))
        return f"{note}\n\N{EM DASH} {self._origin} {signature}\n"


def add_v1(tree: Tree, proposed: dict[str, object], now: float) -> dict[str, object]:
    """Rekor v1's `POST /api/v1/log/entries`: a `hashedrekord` or a `dsse`, with a promise of its own."""
    if proposed["kind"] == "dsse":
        body = canonical(_dsse_body(proposed))
    else:
        body = canonical(proposed)
        spec = _object(proposed, "spec")
        certificate = _certificate(base64.b64decode(str(_object(spec, "signature", "publicKey")["content"])))
        digest = bytes.fromhex(str(_object(spec, "data", "hash")["value"]))
        _check(certificate, str(_object(spec, "signature")["content"]), digest)
    index, size, root, proof, checkpoint = tree.append(body)
    entry = {"body": b64(body), "integratedTime": int(now), "logID": tree.key.id.hex(), "logIndex": index}
    verification = {
        "signedEntryTimestamp": b64(tree.key.sign(canonical(entry))),
        "inclusionProof": {
            "logIndex": index,
            "treeSize": size,
            "rootHash": root.hex(),
            "hashes": [item.hex() for item in proof],
            "checkpoint": checkpoint,
        },
    }
    return {hashlib.sha256(body).hexdigest(): {**entry, "verification": verification}}


def add_v2(tree: Tree, request: dict[str, object]) -> dict[str, object]:
    """Rekor v2's `POST /api/v2/log/entries`: a `hashedrekord`, without a time of its own."""
    wanted = _object(request, "hashedRekordRequestV002")
    signature = _object(wanted, "signature")
    raw = base64.b64decode(str(_object(signature, "verifier", "x509Certificate")["rawBytes"]))
    _check(
        x509.load_der_x509_certificate(raw),
        str(signature["content"]),
        base64.b64decode(str(wanted["digest"])),
    )
    data = {"algorithm": "SHA2_256", "digest": wanted["digest"]}
    body = canonical(
        {
            "apiVersion": "0.0.2",
            "kind": "hashedrekord",
            "spec": {"hashedRekordV002": {"data": data, "signature": signature}},
        }
    )
    index, size, root, proof, checkpoint = tree.append(body)
    return {
        "logIndex": str(index),
        "logId": {"keyId": b64(tree.key.id)},
        "kindVersion": {"kind": "hashedrekord", "version": "0.0.2"},
        "inclusionProof": {
            "logIndex": str(index),
            "treeSize": str(size),
            "rootHash": b64(root),
            "hashes": [b64(item) for item in proof],
            "checkpoint": {"envelope": checkpoint},
        },
        "canonicalizedBody": b64(body),
    }


def canonical(value: object) -> bytes:
    """JSON as RFC 8785 has it, for the texts and whole numbers that stand in entries."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def _dsse_body(proposed: dict[str, object]) -> dict[str, object]:
    content = _object(proposed, "spec", "proposedContent")
    text = str(content["envelope"])
    envelope = json.loads(text)
    assert isinstance(content["verifiers"], list)
    (verifier,) = content["verifiers"]
    certificate = _certificate(base64.b64decode(verifier))
    payload = base64.b64decode(envelope["payload"])
    kind = envelope["payloadType"].encode()
    encoded = b"DSSEv1 %d %s %d %s" % (len(kind), kind, len(payload), payload)
    for signature in envelope["signatures"]:
        _check(certificate, signature["sig"], hashlib.sha256(encoded).digest())
    return {
        "apiVersion": "0.0.1",
        "kind": "dsse",
        "spec": {
            "envelopeHash": {"algorithm": "sha256", "value": hashlib.sha256(text.encode()).hexdigest()},
            "payloadHash": {"algorithm": "sha256", "value": hashlib.sha256(payload).hexdigest()},
            "signatures": [
                {"signature": item["sig"], "verifier": verifier} for item in envelope["signatures"]
            ],
        },
    }


def _object(value: object, *keys: str) -> dict[str, object]:
    for key in keys:
        assert isinstance(value, dict)
        value = value[key]
    assert isinstance(value, dict)
    return value


def _certificate(pem: bytes) -> x509.Certificate:
    return x509.load_pem_x509_certificate(pem)


def _check(certificate: x509.Certificate, signature: str, digest: bytes) -> None:
    """Logs take only signatures that hold."""
    key = certificate.public_key()
    assert isinstance(key, ec.EllipticCurvePublicKey)
    key.verify(base64.b64decode(signature), digest, ec.ECDSA(utils.Prehashed(hashes.SHA256())))


def _root(leaves: list[bytes]) -> bytes:
    if len(leaves) == 1:
        return leaves[0]
    split = 1 << (len(leaves) - 1).bit_length() - 1
    return hashlib.sha256(b"\1" + _root(leaves[:split]) + _root(leaves[split:])).digest()


def _path(index: int, leaves: list[bytes]) -> list[bytes]:
    if len(leaves) == 1:
        return []
    split = 1 << (len(leaves) - 1).bit_length() - 1
    if index < split:
        return [*_path(index, leaves[:split]), _root(leaves[split:])]
    return [*_path(index - split, leaves[split:]), _root(leaves[:split])]
