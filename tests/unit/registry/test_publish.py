"""Versions of models become images in a real registry."""

import base64
import io
import json
import secrets
import tarfile
import threading
import time
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import bcrypt
import jwt
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID
from farandole.exceptions import ModelDamagedError, RegistryDeniedError, RegistryError, UsageError
from farandole.models.store import ModelStore, verify
from farandole.registry.client import Manifest, Registry, Scope, digest_of
from farandole.registry.credentials import login_for
from farandole.registry.image import Base, ModelImage
from farandole.registry.publish import publish, publish_file

from tests.models import save_small
from tests.registry import BASE, push_serving_image, running_registry

WEIGHTS = secrets.token_bytes(3_000_000)


@pytest.fixture
def repository(request):
    return f"lab/{request.node.name.replace('_', '-').lower()}"


def save(store, weights=WEIGHTS, **about):
    return save_small(store, weights=weights, **about)


def pulled(reference):
    """Return the manifest, the configuration and the tar file of the last layer of an image."""
    registry = Registry.of(reference)
    manifest = registry.manifest(reference.repository, reference.wanted).parsed()
    config, layer = manifest["config"], manifest["layers"][-1]
    read = [b"".join(registry.blob(reference.repository, one["digest"], one["size"])) for one in (config, layer)]
    return manifest, json.loads(read[0]), tarfile.open(fileobj=io.BytesIO(read[1]))


def test_an_image_is_the_serving_image_and_one_layer_with_the_model(registry, repository, model_store, tmp_path):
    info = save(model_store, run="20261128-1", git="abc", metrics={"accuracy": 0.9})
    found = publish(info, registry.reference(repository), registry.reference(BASE))
    assert str(found.reference).startswith(f"{registry.host}/{repository}:1@sha256:")
    assert found.base_sent == 0
    assert len(WEIGHTS) <= found.sent <= len(WEIGHTS) + 2_000_000
    manifest, config, layer = pulled(replace(found.reference, digest=""))
    assert manifest["layers"][0]["mediaType"] == "application/vnd.oci.image.layer.v1.tar+gzip"
    assert len(manifest["layers"]) == len(config["rootfs"]["diff_ids"]) == len(config["history"]) == 2
    assert config["config"]["Cmd"] == ["python", "-m", "farandole.serving", "--no-login", "iris:1"]
    assert config["config"]["Env"] == [
        "LANG=C.UTF-8",
        "FARANDOLE_MODELS=/models",
        "JUPYTERHUB_SERVICE_URL=http://0.0.0.0:8080/",
    ]
    labels = config["config"]["Labels"]
    assert labels["farandole.runtime"] == "onnx"
    assert labels["farandole.model"] == "iris:1"
    assert labels["org.opencontainers.image.version"] == "1"
    assert labels["org.opencontainers.image.revision"] == "abc"
    assert labels["org.opencontainers.image.created"] == "1970-01-01T00:00:01Z"
    assert json.loads(labels["farandole.metrics"]) == {"accuracy": 0.9}
    assert {(each.uid, each.gid, each.mtime) for each in layer} == {(0, 0, 0)}
    layer.extractall(tmp_path / "image", filter="data")
    inside = ModelStore(tmp_path / "image" / "models").find("iris:1")
    verify(inside)
    assert replace(inside, folder=info.folder) == info


def test_the_same_version_is_the_same_image(registry, repository, model_store):
    info = save(model_store)
    base = registry.reference(BASE)
    first = publish(info, registry.reference(f"{repository}:1"), base)
    again = publish(info, registry.reference(f"{repository}:1"), base)
    elsewhere = publish(info, registry.reference(f"{repository}-2:first"), base)
    assert first.reference.digest == again.reference.digest == elsewhere.reference.digest
    assert (again.sent, again.base_sent) == (0, 0)


def test_a_tag_of_another_image_stays(registry, repository, model_store):
    base, target = registry.reference(BASE), registry.reference(f"{repository}:1")
    first = publish(save(model_store), target, base)
    other = save(model_store, weights=b"other")
    with pytest.raises(RegistryError, match=rf"{repository}:1 is another image already .*:1-2\.$"):
        publish(other, target, base)
    assert Registry.of(target).manifest(repository, "1").digest == first.reference.digest
    assert publish(other, registry.reference(repository), base).reference.tag == "2"


def test_the_serving_image_of_another_registry_is_uploaded_once(registry, repository, model_store, tmp_path):
    info = save(model_store)
    with running_registry(tmp_path / "elsewhere") as other:
        size = push_serving_image(other.reference(BASE), content=secrets.token_bytes(100_000))
        first = publish(info, registry.reference(repository), other.reference(BASE))
        again = publish(save(model_store, weights=b"2"), registry.reference(repository), other.reference(BASE))
    assert (first.base_sent, again.base_sent) == (size, 0)


def test_a_model_for_torch_needs_a_serving_image_with_torch(registry, repository, model_store):
    info = replace(save(model_store), files={})
    with pytest.raises(UsageError, match=r"farandole-serving:1 has no torch, and iris:1 is not exported to ONNX"):
        publish(info, registry.reference(repository), registry.reference(BASE))


def test_an_image_that_is_missing_or_no_serving_image_is_named(registry, repository, model_store):
    info, target = save(model_store), registry.reference(repository)
    with pytest.raises(RegistryError, match=r"the serving image .*/farandole-serving:9 is not in its registry"):
        publish(info, target, registry.reference("farandole-serving:9"))
    push_serving_image(registry.reference("lab/other:1"), runtime="")
    published = publish(info, target, registry.reference(BASE)).reference
    for base in (registry.reference("lab/other:1"), published):
        with pytest.raises(RegistryError, match=rf"{base.repository}:1.* is not a serving image .*`--base`"):
            publish(info, registry.reference(f"{repository}-2"), base)


GOOD = {"mediaType": "a/b", "digest": f"sha256:{'0' * 64}", "size": 1}


@pytest.mark.parametrize(
    "layer",
    [
        {**GOOD, "digest": "sha256:../../../../etc/cron.d/a"},
        {**GOOD, "digest": f"sha512:{'0' * 128}"},
        {**GOOD, "digest": 3},
        {**GOOD, "size": -1},
        {**GOOD, "size": "1"},
        {**GOOD, "size": True},
        {**GOOD, "mediaType": []},
        [],
    ],
)
def test_a_serving_image_with_damaged_layers_is_refused(registry, layer):
    with pytest.raises(RegistryError, match=r"^\S+/farandole-serving:1 is not a container image: "):
        Base.find(registry.reference(BASE), Fake({"Labels": {"farandole.runtime": "onnx"}}, layer))


def test_a_serving_image_may_have_no_variables_and_no_history(registry, model_store):
    fake = Fake({"Labels": {"farandole.runtime": "onnx"}, "Env": None}, GOOD, history=None)
    image = ModelImage.make(save(model_store), Base.find(registry.reference(BASE), fake))
    config = json.loads(image.config)
    assert len(config["config"]["Env"]) == 2
    assert len(config["history"]) == 1


class Fake:
    """A registry with one image, which has one layer with this descriptor."""

    def __init__(self, config, layer, **more):
        about = {"config": config, "rootfs": {"diff_ids": [GOOD["digest"]]}, **more}
        self.content = json.dumps(about).encode()
        self.layer = layer

    def manifest(self, *_):
        about = {"config": {"digest": digest_of(self.content)}, "layers": [self.layer]}
        return Manifest(content=json.dumps(about).encode(), media_type="a/b")

    def blob(self, *_):
        yield self.content


def test_a_model_that_was_damaged_is_not_published(registry, repository, model_store):
    info = save(model_store)
    (info.folder / "weights.safetensors").chmod(0o644)
    (info.folder / "weights.safetensors").write_bytes(b"short")
    with pytest.raises(ModelDamagedError, match=r"iris:1 is damaged: 'weights.safetensors' has 5 bytes instead of "):
        publish(info, registry.reference(repository), registry.reference(BASE))
    assert Registry.of(registry.reference(repository)).manifest(repository, "1") is None


@pytest.fixture(scope="module")
def closed(tmp_path_factory):
    """A registry that asks for the login of ada, whose password is secret."""
    folder = tmp_path_factory.mktemp("closed")
    (folder / "htpasswd").write_text(f"ada:{bcrypt.hashpw(b'secret', bcrypt.gensalt(4)).decode()}\n")
    with running_registry(folder, auth={"htpasswd": {"realm": "lab", "path": str(folder / "htpasswd")}}) as running:
        yield running


def log_in(folder, host, login):
    folder.mkdir(exist_ok=True)
    auth = base64.b64encode(login.encode()).decode()
    (folder / "config.json").write_text(json.dumps({"auths": {host: {"auth": auth}}}))


def test_a_login_of_docker_is_used(registry, closed, repository, model_store, tmp_path, monkeypatch):
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "docker"))
    info, target, base = save(model_store), closed.reference(repository), registry.reference(BASE)
    with pytest.raises(
        RegistryDeniedError, match=rf"^{closed.host} asks for a login\. Give your name there with `--user`"
    ):
        publish(info, target, base)
    log_in(tmp_path / "docker", closed.host, "ada:wrong")
    with pytest.raises(RegistryDeniedError, match=rf"^{closed.host} does not allow this .*UNAUTHORIZED"):
        publish(info, target, base)
    log_in(tmp_path / "docker", closed.host, "ada:secret")
    assert publish(info, target, base).sent
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "none"))
    assert publish(info, target, base, login=("ada", "secret")).sent == 0


def test_a_login_of_docker_may_be_a_link(tmp_path, monkeypatch):
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "docker"))
    log_in(tmp_path / "secret", "a.b", "ada:secret")
    (tmp_path / "docker").mkdir()
    (tmp_path / "docker" / "config.json").symlink_to("../secret/config.json")
    assert login_for("a.b") == ("ada", "secret")
    (tmp_path / "secret" / "config.json").unlink()
    assert login_for("a.b") is None


def test_the_login_of_the_serving_image_is_another_one(registry, closed, repository, model_store, tmp_path):
    push_serving_image_with_login(closed, tmp_path)
    info, target, base = save(model_store), registry.reference(repository), closed.reference(BASE)
    # The password for this registry would go to the other one.
    with pytest.raises(
        RegistryDeniedError, match=rf"^{closed.host} asks for a login\. The serving image .*docker login"
    ):
        publish(info, target, base, login=("ada", "secret"))
    with pytest.raises(RegistryDeniedError, match=rf"^{closed.host} asks for a login\. The serving image .*`--user`"):
        publish_file(info, tmp_path / "iris.tar", base)
    assert publish_file(info, tmp_path / "iris.tar", base, login=("ada", "secret"))


def push_serving_image_with_login(closed, folder):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DOCKER_CONFIG", str(folder / "pusher"))
        log_in(folder / "pusher", closed.host, "ada:secret")
        push_serving_image(closed.reference(BASE))


class TokenServer(ThreadingHTTPServer):
    """Gives ada tokens for a registry, as the servers of public registries do. It keeps the scopes that were asked."""

    def __init__(self, folder):
        super().__init__(("127.0.0.1", 0), Tokens)
        self.key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "tokens")])
        now = datetime.now(UTC)
        builder = x509.CertificateBuilder(name, name, self.key.public_key(), 1, now - timedelta(1), now + timedelta(1))
        certificate = builder.sign(self.key, hashes.SHA256())
        self.certificates = folder / "tokens.pem"
        self.certificates.write_bytes(certificate.public_bytes(Encoding.PEM))
        self.chain = [base64.b64encode(certificate.public_bytes(Encoding.DER)).decode()]
        self.scopes = []


class Tokens(BaseHTTPRequestHandler):
    def do_GET(self):
        query = parse_qs(urlsplit(self.path).query)
        if self.headers.get("Authorization") != f"Basic {base64.b64encode(b'ada:secret').decode()}":
            self.send_error(401)
            return
        self.server.scopes.append(query["scope"])
        parts = [scope.split(":") for scope in query["scope"]]
        access = [{"type": kind, "name": name, "actions": actions.split(",")} for kind, name, actions in parts]
        now = int(time.time())
        claims = {"iss": "tokens", "aud": query["service"][0], "sub": "ada", "access": access, "exp": now + 60}
        claims |= {"nbf": now - 60, "iat": now, "jti": secrets.token_hex(8)}
        token = jwt.encode(claims, self.server.key, "ES256", headers={"x5c": self.server.chain})
        body = json.dumps({"token": token}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@contextmanager
def token_server(folder):
    with TokenServer(folder) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def test_a_registry_whose_tokens_another_server_gives(repository, model_store, tmp_path, monkeypatch):
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "docker"))
    with token_server(tmp_path) as tokens:
        where = {"realm": f"http://127.0.0.1:{tokens.server_port}/token", "service": "lab", "issuer": "tokens"}
        token = {**where, "rootcertbundle": str(tokens.certificates)}
        with running_registry(tmp_path / "registry", auth={"token": token}) as registry:
            info, target, base = save(model_store), registry.reference(repository), registry.reference(BASE)
            with pytest.raises(RegistryDeniedError, match=rf"^{registry.host} does not allow this .* 401 "):
                publish(info, target, base)
            log_in(tmp_path / "docker", registry.host, "ada:secret")
            push_serving_image(base)
            found = publish(info, target, base)
            reader = Registry.of(target)
            reader._tokens[Scope(target.repository)] = "Bearer expired"
            assert reader.manifest(target.repository, "1").digest == found.reference.digest
    assert found.base_sent == 0
    assert [f"repository:{repository}:pull,push", "repository:farandole-serving:pull"] in tokens.scopes
