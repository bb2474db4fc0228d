"""A laptop needs no package that only ranks need."""

import subprocess
import sys

HEAVY = ("torch", "horovod", "jupyterhub", "PIL", "matplotlib", "tensorboard")
LEAD = """
import sys

for name in {heavy}:
    sys.modules[name] = None  # an import of the package fails
from IPython.core.interactiveshell import InteractiveShell
import farandole.cli.__main__
import farandole.driver.cluster
import farandole as fd

shell = InteractiveShell.instance()
shell.run_line_magic("load_ext", "farandole")
shell.run_line_magic("cluster", "start --help")
fd.sync.local(every=4)
print(sorted(set(sys.modules) & {{"numpy", "pandas"}}))
"""


def test_a_driver_works_without_the_packages_of_ranks():
    command = [sys.executable, "-c", LEAD.format(heavy=HEAVY)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "--hub" in done.stdout
    assert done.stdout.splitlines()[-1] == "[]"


def test_the_command_starts_without_the_packages_of_a_driver():
    code = "import sys, farandole.cli.__main__; print({'IPython', 'numpy', 'pandas', 'torch'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "set()"
