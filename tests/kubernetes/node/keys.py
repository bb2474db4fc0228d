"""Keys, certificates and kubeconfigs of a cluster that exists for one test session."""

from __future__ import annotations

import json
from base64 import b64encode
from dataclasses import dataclass
from pathlib import Path

from tests.docker.engines.debian import run

DAYS = "2"


@dataclass(frozen=True, kw_only=True)
class Keys:
    """The files in ``folder``, which only root can read. The cluster's own authority signs all certificates."""

    folder: Path

    @property
    def authority(self) -> Path:
        """The path of the authority's certificate."""
        return self.folder / "ca.crt"

    def make_authority(self) -> None:
        """Create the cluster's certificate authority, and the keys that sign the tokens of service accounts."""
        self.folder.mkdir(mode=0o700)
        self._key("ca")
        subject = ("-subj", "/CN=farandole-test-ca", "-days", DAYS)
        self._openssl("req", "-x509", "-new", "-key", "ca.key", *subject, "-out", "ca.crt")
        self._key("accounts")
        self._openssl("ec", "-in", "accounts.key", "-pubout", "-out", "accounts.pub")

    def make(self, name: str, subject: str, addresses: tuple[str, ...] = ()) -> None:
        """Create the key and the certificate ``name``, which a client or a server at ``addresses`` can use."""
        uses = "keyUsage=digitalSignature,keyEncipherment\nextendedKeyUsage=clientAuth,serverAuth\n"
        names = f"subjectAltName={','.join(addresses)}\n" if addresses else ""
        (self.folder / f"{name}.ext").write_text(uses + names)
        self._key(name)
        self._openssl("req", "-new", "-key", f"{name}.key", "-subj", subject, "-out", f"{name}.csr")
        signer = ("-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-days", DAYS)
        self._openssl(
            *("x509", "-req", "-in", f"{name}.csr", *signer, "-extfile", f"{name}.ext", "-out", f"{name}.crt")
        )

    def crt(self, name: str) -> str:
        """Return the path of the certificate ``name``."""
        return str(self.folder / f"{name}.crt")

    def key(self, name: str) -> str:
        """Return the path of the key ``name``."""
        return str(self.folder / f"{name}.key")

    def kubeconfig(self, name: str, server: str) -> Path:
        """Write a kubeconfig that uses the certificate ``name``, and return its path."""
        cluster = {"server": server, "certificate-authority-data": _base64(self.authority)}
        user = {
            "client-certificate-data": _base64(Path(self.crt(name))),
            "client-key-data": _base64(Path(self.key(name))),
        }
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "test", "cluster": cluster}],
            "users": [{"name": name, "user": user}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": name}}],
            "current-context": "test",
        }
        path = self.folder / f"{name}.kubeconfig"
        path.write_text(json.dumps(content))
        path.chmod(0o600)
        return path

    def _key(self, name: str) -> None:
        self._openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", f"{name}.key")

    def _openssl(self, *arguments: str) -> None:
        run("openssl", *arguments, folder=self.folder)


def _base64(path: Path) -> str:
    return b64encode(path.read_bytes()).decode()
