"""Repositories of restic with a key that opens them at once. restic's own keys take half a second in each command."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import subprocess
from typing import TYPE_CHECKING

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.poly1305 import Poly1305

if TYPE_CHECKING:
    from pathlib import Path

NONCE = 16
MAC = 16


def create_repository(folder: Path, password: str) -> None:
    """Create a repository, and encrypt its key again, with the smallest cost that scrypt has."""
    environment = {**os.environ, "RESTIC_PASSWORD": password}
    subprocess.run(["restic", "init", "--quiet", "--repo", str(folder)], env=environment, check=True, timeout=60)
    [path] = (folder / "keys").iterdir()
    key = json.loads(path.read_bytes())
    sealed = base64.b64decode(key["data"])
    master = _cipher(_derived(key, password), sealed[:NONCE], sealed[NONCE:-MAC])
    key.update(N=2, r=1, p=1)
    derived, nonce = _derived(key, password), os.urandom(NONCE)
    sealed = _cipher(derived, nonce, master)
    key["data"] = base64.b64encode(nonce + sealed + _mac(derived, nonce, sealed)).decode()
    text = json.dumps(key).encode()
    path.unlink()
    (path.parent / hashlib.sha256(text).hexdigest()).write_bytes(text)


def _derived(key: dict[str, str], password: str) -> bytes:
    """Return the 32 bytes that encrypt and the 32 that authenticate, from a key's parameters of scrypt."""
    cost = {"n": int(key["N"]), "r": int(key["r"]), "p": int(key["p"])}
    return hashlib.scrypt(password.encode(), salt=base64.b64decode(key["salt"]), dklen=64, maxmem=2**30, **cost)


def _cipher(derived: bytes, nonce: bytes, content: bytes) -> bytes:
    """Encrypt or decrypt with AES-256 in counter mode."""
    return Cipher(algorithms.AES(derived[:32]), modes.CTR(nonce)).encryptor().update(content)


def _mac(derived: bytes, nonce: bytes, sealed: bytes) -> bytes:
    """Return the Poly1305-AES authentication code of a ciphertext."""
    pad = Cipher(algorithms.AES(derived[32:48]), modes.ECB()).encryptor().update(nonce)
    return Poly1305.generate_tag(derived[48:] + pad, sealed)
