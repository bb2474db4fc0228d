"""A program with a user's password that writes restic's files by itself, also such as restic would never write.

https://restic.readthedocs.io/en/v0.14.0/100_references.html#design describes the files.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import struct
from typing import TYPE_CHECKING, Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.poly1305 import Poly1305

if TYPE_CHECKING:
    from pathlib import Path

EPOCH = "2026-01-01T00:00:00Z"
KINDS = {("data", False): 0, ("tree", False): 1, ("data", True): 2, ("tree", True): 3}
"""The types of blobs in the header of a pack, with and without compression."""


class Key:
    """Encrypts and decrypts as restic does, with AES-256-CTR and Poly1305-AES."""

    def __init__(self, encrypt: bytes, k: bytes, r: bytes) -> None:
        self._encrypt = encrypt
        self._mac = k, r

    def encrypt(self, plain: bytes) -> bytes:
        nonce = os.urandom(16)
        text = self._stream(nonce, plain)
        k, r = self._mac
        return nonce + text + Poly1305.generate_tag(r + _block(k, nonce), text)

    def decrypt(self, found: bytes) -> bytes:
        """Return the content; raises InvalidSignature if this is not the key."""
        nonce, text, tag = found[:16], found[16:-16], found[-16:]
        k, r = self._mac
        Poly1305.verify_tag(r + _block(k, nonce), text, tag)
        return self._stream(nonce, text)

    def _stream(self, nonce: bytes, text: bytes) -> bytes:
        return Cipher(algorithms.AES(self._encrypt), modes.CTR(nonce)).encryptor().update(text)


class Forger:
    """Adds files to the folder of a repository, as a program with the user's token and password can."""

    def __init__(self, folder: Path, password: str) -> None:
        self.folder = folder
        self._key = self._master(password.encode())

    def copy_packs(self, indexes: list[dict[str, Any]], *, genuine: bool) -> tuple[Path, str]:
        """Add a pack with what all packs of data contain, or junk in its place, and a snapshot that needs the pack.

        Return the pack, and the snapshot's id.
        """
        own = os.urandom(1000)
        blobs = [("data", own, hashlib.sha256(own).hexdigest())]
        tree = self._tree(own, blobs[0][2])
        packed = [self._packed(*blobs[0])]
        for pack in (each for index in indexes for each in index["packs"] if each["blobs"][0]["type"] == "data"):
            content = self._path("data", pack["id"]).read_bytes()
            for blob in pack["blobs"]:
                raw = content[blob["offset"] : blob["offset"] + blob["length"]]
                packed.append((raw if genuine else self._key.encrypt(b"junk"), blob))
        copies = self._pack(packed)
        root = hashlib.sha256(tree).hexdigest()
        trees = self._pack([self._packed("tree", tree, root)])
        self._put("index", self._key.encrypt(json.dumps({"packs": [copies, trees]}).encode()))
        return self._path("data", copies["id"]), self.add_snapshot(EPOCH, root)

    def add_snapshot(self, time: str, tree: str) -> str:
        """Add a snapshot with any time and tree, and return its id."""
        record = {"time": time, "tree": tree, "paths": ["/x"], "hostname": "x"}
        return self._put("snapshots", self._key.encrypt(json.dumps(record).encode()))

    def _tree(self, content: bytes, name: str) -> bytes:
        times = dict.fromkeys(("mtime", "atime", "ctime"), EPOCH)
        file = {"name": "x", "type": "file", "mode": 420, "uid": 0, "gid": 0, "size": len(content), "content": [name]}
        return json.dumps({"nodes": [{**file, **times}]}, separators=(",", ":")).encode() + b"\n"

    def _packed(self, kind: str, content: bytes, name: str) -> tuple[bytes, dict[str, Any]]:
        return self._key.encrypt(content), {"id": name, "type": kind}

    def _pack(self, packed: list[tuple[bytes, dict[str, Any]]]) -> dict[str, Any]:
        """Write a pack, and return its entry for an index."""
        blobs, header, offset = [], b"", 0
        for raw, blob in packed:
            blobs.append({**blob, "offset": offset, "length": len(raw)})
            offset += len(raw)
            size = blob.get("uncompressed_length")
            header += struct.pack("<BI", KINDS[blob["type"], size is not None], len(raw))
            header += (b"" if size is None else struct.pack("<I", size)) + bytes.fromhex(blob["id"])
        header = self._key.encrypt(header)
        content = b"".join(raw for raw, _ in packed) + header + struct.pack("<I", len(header))
        return {"id": self._put("data", content), "blobs": blobs}

    def _put(self, kind: str, content: bytes) -> str:
        name = hashlib.sha256(content).hexdigest()
        self._path(kind, name).write_bytes(content)
        return name

    def _path(self, kind: str, name: str) -> Path:
        return self.folder / kind / (f"{name[:2]}/{name}" if kind == "data" else name)

    def _master(self, password: bytes) -> Key:
        for file in (self.folder / "keys").iterdir():
            found = json.loads(file.read_text())
            salt, cost = base64.b64decode(found["salt"]), {"n": found["N"], "r": found["r"], "p": found["p"]}
            derived = hashlib.scrypt(password, salt=salt, dklen=64, maxmem=1 << 28, **cost)
            try:
                content = Key(derived[:32], derived[32:48], derived[48:]).decrypt(base64.b64decode(found["data"]))
            except InvalidSignature:
                continue
            master = json.loads(content)
            parts = (master["encrypt"], master["mac"]["k"], master["mac"]["r"])
            return Key(*map(base64.b64decode, parts))
        raise AssertionError("the password opens no key")


def _block(k: bytes, nonce: bytes) -> bytes:
    return Cipher(algorithms.AES(k), modes.ECB()).encryptor().update(nonce)
