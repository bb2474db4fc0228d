"""Build Horovod's wheel from its released source, once for each version of torch and Python, and print its path.

Horovod's latest release, from June 2023, does not build with current versions of torch; the changes in `EDITS` fix
that. Run this script with the Python that will use the wheel; torch and `BUILD_REQUIREMENTS` must be installed there.
The wheel is cached in ``${XDG_CACHE_HOME:-~/.cache}/farandole/wheels``. Exit status 3 means that the machine has no C++
compiler.

    python images/horovod/build_wheel.py [--requirements | --source FOLDER | --to FOLDER]

``--source`` only downloads the released source into FOLDER; ``--to`` also copies the wheel into FOLDER.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

HOROVOD = "0.28.1"
BUILD_REQUIREMENTS = (
    "cmake<4",
    "setuptools<81",
    "wheel",
    "packaging",
    "cloudpickle",
    "cffi",
    "numpy",
    "psutil",
    "pyyaml",
)
NO_COMPILER = 3


@dataclass(frozen=True)
class Edit:
    """A replacement in a source file; the build fails if ``old`` does not occur, because the source has changed."""

    path: str
    old: str
    new: str


# The background threads of all ranks negotiate every millisecond even if there is nothing to do, which costs each rank
# a tenth of a core and hundreds of kilobytes per second. HOROVOD_IDLE_CYCLE_TIME, in milliseconds, lets them rest:
# - A thread that has had no tensor for this time waits for a tensor or for the shutdown, at most for the same time. The
#   wait is limited because the peers cannot negotiate without this thread, and Gloo gives up after its timeout.
# - A thread with an unfinished tensor does not wait, so that it is ready when the last rank queues this tensor.
# - With several process sets no thread waits, because all ranks negotiate before those of a set can run its tensors.
REST = (
    Edit(
        "horovod/common/global_state.h",
        "#include <queue>\n",
        "#include <condition_variable>\n#include <mutex>\n#include <queue>\n",
    ),
    Edit(
        "horovod/common/global_state.h",
        "// The global state shared by threads.\n",
        """\
// The wait of the background thread between two cycles with nothing to do.
class IdleWait {
public:
  // Length of an idle cycle. With 0, the background thread never waits.
  std::chrono::milliseconds cycle{0};

  void Wait(bool busy) {
    std::unique_lock<std::mutex> lock(mutex_);
    if (!busy && std::chrono::steady_clock::now() - last_busy_ >= cycle) {
      condition_.wait_for(lock, cycle, [this] { return woken_; });
    }
    if (busy || woken_) {
      last_busy_ = std::chrono::steady_clock::now();
    }
    woken_ = false;
  }

  // Ends the current wait or, between two waits, the next one.
  void Wake() {
    {
      std::lock_guard<std::mutex> guard(mutex_);
      woken_ = true;
    }
    condition_.notify_one();
  }

private:
  std::mutex mutex_;
  std::condition_variable condition_;
  bool woken_ = false;
  std::chrono::steady_clock::time_point last_busy_;
};

// The global state shared by threads.
""",
    ),
    Edit(
        "horovod/common/global_state.h",
        "  // Time point when last cycle started.\n",
        "  IdleWait idle_wait;\n\n  // Time point when last cycle started.\n",
    ),
    Edit(
        "horovod/common/global_state.h",
        "      shut_down = true;\n",
        "      shut_down = true;\n      idle_wait.Wake();\n",
    ),
    Edit(
        "horovod/common/tensor_queue.h",
        "  void RemoveJoinTensor();\n",
        """\
  void RemoveJoinTensor();

  bool Empty() const {
    std::lock_guard<std::mutex> guard(mutex_);
    return tensor_table_.empty();
  }
""",
    ),
    Edit(
        "horovod/common/operations.cc",
        "  // Override response cache capacity, if it's set.\n",
        """\
  auto horovod_idle_cycle_time = std::getenv("HOROVOD_IDLE_CYCLE_TIME");
  state.idle_wait.cycle = std::chrono::milliseconds(
      horovod_idle_cycle_time ? std::strtol(horovod_idle_cycle_time, nullptr, 10) : 0);

  // Override response cache capacity, if it's set.
""",
    ),
    Edit(
        "horovod/common/operations.cc",
        "  state.last_cycle_start = std::chrono::steady_clock::now();\n",
        """\
  if (state.idle_wait.cycle.count() > 0) {
    state.idle_wait.Wait(state.dynamic_process_sets ||
                         state.process_set_table.Ids().size() > 1 ||
                         !state.process_set_table.Get(0).tensor_queue.Empty());
  }
  state.last_cycle_start = std::chrono::steady_clock::now();
""",
    ),
    Edit(
        "horovod/common/operations.cc",
        "tensor_queue.AddToTensorQueue(e, message);\n",
        "tensor_queue.AddToTensorQueue(e, message);\n  horovod_global.idle_wait.Wake();\n",
    ),
    Edit(
        "horovod/common/operations.cc",
        "tensor_queue.AddToTensorQueueMulti(entries, messages);\n",
        "tensor_queue.AddToTensorQueueMulti(entries, messages);\n  horovod_global.idle_wait.Wake();\n",
    ),
    Edit(
        "horovod/common/operations.cc",
        "    horovod_global.shut_down = true;\n",
        "    horovod_global.shut_down = true;\n    horovod_global.idle_wait.Wake();\n",
    ),
)

# Without these edits, a thread that waits for a collective polls in a loop, and acquires the GIL for each poll. This
# uses a whole core, and delays the other threads of the rank. With them, the thread blocks until the collective ends.
WAIT = (
    Edit("horovod/torch/handle_manager.h", "#include <atomic>\n", "#include <atomic>\n#include <condition_variable>\n"),
    Edit(
        "horovod/torch/handle_manager.h",
        "  bool PollHandle(int handle);\n",
        "  bool PollHandle(int handle);\n  void WaitForHandle(int handle);\n",
    ),
    Edit(
        "horovod/torch/handle_manager.h",
        "  std::mutex mutex_;\n",
        "  std::mutex mutex_;\n  std::condition_variable changed_;\n",
    ),
    Edit(
        "horovod/torch/handle_manager.cc",
        "  results_[handle] = std::make_shared<Status>(status);\n}\n",
        """\
  results_[handle] = std::make_shared<Status>(status);
  changed_.notify_all();
}

// Returns at once if there is no such handle.
void HandleManager::WaitForHandle(int handle) {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [this, handle] {
    auto found = results_.find(handle);
    return found == results_.end() || found->second != nullptr;
  });
}
""",
    ),
    Edit(
        "horovod/torch/handle_manager.cc",
        "  results_.clear();\n",
        "  results_.clear();\n  changed_.notify_all();\n",
    ),
    Edit(
        "horovod/torch/mpi_ops_v2.cc",
        "  while (true) {\n    if (handle_manager.PollHandle(handle)) break;\n    {\n"
        "      py::gil_scoped_release release_python_gil;\n      std::this_thread::yield();\n    }\n  }\n",
        "  {\n    py::gil_scoped_release release_python_gil;\n    handle_manager.WaitForHandle(handle);\n  }\n",
    ),
    # The destructor of a condition variable blocks while a thread waits for it, so the manager is never destroyed.
    Edit(
        "horovod/torch/mpi_ops_v2.cc",
        "static HandleManager handle_manager;\n",
        "static HandleManager& handle_manager = *new HandleManager();\n",
    ),
)

EDITS = (
    # torch's headers require C++17.
    Edit("CMakeLists.txt", "set(CMAKE_CXX_STANDARD 14)", "set(CMAKE_CXX_STANDARD 17)"),
    Edit("horovod/torch/CMakeLists.txt", "set(CMAKE_CXX_STANDARD 14)", "set(CMAKE_CXX_STANDARD 17)"),
    Edit("third_party/gloo/CMakeLists.txt", "-std=c++11 -fPIC", "-fPIC"),
    # The Gloo context of a process set ignores HOROVOD_GLOO_IFACE and looks up the address of the host's name instead.
    # On Debian this address is by default 127.0.1.1, which no interface has, so that Gloo aborts the process.
    Edit(
        "horovod/common/gloo/gloo_context.cc",
        "  device_attr.iface = gloo_iface_;\n  device_attr.ai_family = AF_UNSPEC;\n"
        "  auto dev = CreateDevice(device_attr);\n\n  global_ctx",
        "  gloo_iface_ = global_context.gloo_iface_;\n"
        "  device_attr.iface = gloo_iface_;\n  device_attr.ai_family = AF_UNSPEC;\n"
        "  auto dev = CreateDevice(device_attr);\n\n  global_ctx",
    ),
    # In a container, the mounted driver library may have only its versioned name.
    Edit("horovod/torch/cuda_util.cc", 'dlopen("libcuda.so"', 'dlopen("libcuda.so.1"'),
    # Python 3.12 has no distutils.
    Edit(
        "horovod/torch/CMakeLists.txt",
        "from distutils.sysconfig import get_python_inc; print(get_python_inc())",
        "import sysconfig; print(sysconfig.get_path('include'))",
    ),
    Edit(
        "horovod/runner/js_run.py",
        "from distutils.spawn import find_executable",
        "from shutil import which as find_executable",
    ),
    Edit("setup.py", "'RelWithDebInfo'", "'Release'"),
    # Find the libraries of torch and NVIDIA relative to Horovod's own library, wherever the package is installed.
    Edit(
        "CMakeLists.txt",
        "set(CMAKE_CXX_STANDARD_REQUIRED ON)",
        "set(CMAKE_CXX_STANDARD_REQUIRED ON)\n"
        "set(CMAKE_BUILD_WITH_INSTALL_RPATH ON)\n"
        'set(CMAKE_INSTALL_RPATH "$ORIGIN/../../torch/lib;$ORIGIN/../../nvidia/nccl/lib;'
        '$ORIGIN/../../nvidia/cu13/lib")',
    ),
    *REST,
    *WAIT,
)


def cache_folder() -> Path:
    """Return the cache folder for the wheel that this script builds with the installed torch and this Python."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    gpu = sorted((name, value) for name, value in os.environ.items() if name.startswith("HOROVOD_"))
    facts = (HOROVOD, version("torch"), sys.version_info[:2], platform.machine(), EDITS, gpu)
    return base / "farandole" / "wheels" / hashlib.sha256(repr(facts).encode()).hexdigest()[:16]


def download_source(folder: Path) -> None:
    """Download the released source archive into ``folder``."""
    pip = [sys.executable, "-m", "pip", "--quiet", "download", "--no-deps", "--no-binary", ":all:"]
    pip += ["--no-build-isolation", "--dest", str(folder), f"horovod=={HOROVOD}"]
    subprocess.run(pip, check=True, stdout=sys.stderr, env=build_environment())


def fetch_source(folder: Path) -> Path:
    """Download and unpack the released source in ``folder``; return the folder with the unpacked files."""
    download_source(folder)
    with tarfile.open(folder / f"horovod-{HOROVOD}.tar.gz") as archive:
        # Debian's Python 3.11.2 has no extraction filters, and newer versions of Python warn if no filter is set.
        if hasattr(tarfile, "data_filter"):
            archive.extraction_filter = tarfile.data_filter
        archive.extractall(folder)
    return folder / f"horovod-{HOROVOD}"


def apply_edits(source: Path) -> None:
    """Apply all edits to ``source``; raises SystemExit if the text to replace is missing."""
    for edit in EDITS:
        path = source / edit.path
        text = path.read_text(encoding="utf-8")
        if edit.old not in text:
            raise SystemExit(f"{edit.path} of Horovod {HOROVOD} does not contain {edit.old!r}: the source has changed.")
        path.write_text(text.replace(edit.old, edit.new), encoding="utf-8")


def build_environment() -> dict[str, str]:
    """Return the build's environment; variables that are already set, for example for a GPU build, take precedence."""
    defaults = {
        "HOROVOD_WITH_PYTORCH": "1",
        "HOROVOD_WITHOUT_TENSORFLOW": "1",
        "HOROVOD_WITHOUT_MXNET": "1",
        "HOROVOD_WITH_GLOO": "1",
        "HOROVOD_WITHOUT_MPI": "1",
        # Since GCC 13, the other headers no longer include these headers, which Horovod's code needs.
        "CXXFLAGS": "-include cstdint -include stdexcept -include string",
        "LDFLAGS": "-s",
        "MAKEFLAGS": f"-j{os.cpu_count() or 1}",
    }
    # The virtual environment's cmake comes first, because newer versions of cmake refuse Horovod's files.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    return {**defaults, **os.environ, "PATH": path}


def build(cache: Path) -> Path:
    """Build the wheel and then rename it into place, so that an interrupted build leaves no wheel in ``cache``."""
    with tempfile.TemporaryDirectory(prefix="farandole-horovod-") as name:
        source = fetch_source(Path(name))
        apply_edits(source)
        pip = [sys.executable, "-m", "pip", "--quiet", "wheel", "--no-deps", "--no-build-isolation", "--no-cache-dir"]
        pip += ["--wheel-dir", name, str(source)]
        subprocess.run(pip, check=True, stdout=sys.stderr, env=build_environment())
        (wheel,) = Path(name).glob("horovod-*.whl")
        cache.mkdir(parents=True, exist_ok=True)
        part = shutil.copy(wheel, cache / f"{wheel.name}.part")
        return Path(part).rename(cache / wheel.name)


def timed_build(cache: Path) -> Path:
    """Build the wheel, and print on stderr how long the build took."""
    print(f"Building Horovod {HOROVOD} for torch {version('torch')} (some minutes, once) ...", file=sys.stderr)
    begun = time.monotonic()
    wheel = build(cache)
    minutes, seconds = divmod(round(time.monotonic() - begun), 60)
    print(f"Built Horovod {HOROVOD} in {minutes}:{seconds:02} min.", file=sys.stderr)
    return wheel


def main(arguments: list[str]) -> int:
    """Print the wheel's path, after building the wheel if it is not cached; return the exit status."""
    if arguments == ["--requirements"]:
        print("\n".join(BUILD_REQUIREMENTS))
        return 0
    if arguments[:1] == ["--source"]:
        download_source(Path(arguments[1]))
        return 0
    cache = cache_folder()
    wheels = sorted(cache.glob("*.whl"))
    if not wheels and not any(shutil.which(compiler) for compiler in ("c++", "g++", "clang++")):
        print("No C++ compiler (g++) was found, so Horovod cannot be built.", file=sys.stderr)
        return NO_COMPILER
    wheel = wheels[0] if wheels else timed_build(cache)
    if arguments[:1] == ["--to"]:
        shutil.copy(wheel, arguments[1])
    print(wheel)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
