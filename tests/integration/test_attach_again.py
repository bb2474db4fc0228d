"""`%cluster attach` in a notebook that leads the cluster already, on a real hub."""

import pytest

from tests.clients.kernel import CellError, RemoteKernel

USER = "lovelace"
SECONDS = 120.0
START = "%load_ext farandole\n%cluster start --workers 1 --ranks 2 --backend none\nclient = %cluster dask"
COMPUTE = "print(client.submit(sum, [1, 2], pure=False).result())"
DIE = "%%distributed --ranks 1\nimport os\nos._exit(1)"


@pytest.fixture(scope="module")
def kernel(hub):
    address, token = hub.start_notebook(USER), hub.browser(USER).make_token()
    with RemoteKernel(address, token, "again.ipynb") as kernel:
        kernel.execute(START, deadline=SECONDS)
        yield kernel
        kernel.execute("%cluster stop", deadline=SECONDS)


def test_dask_ends_only_if_a_rank_was_lost(kernel):
    shown = kernel.execute("%cluster attach", deadline=SECONDS)
    assert shown.startswith("this notebook leads cluster 'main' already\n")
    assert kernel.execute(COMPUTE, deadline=SECONDS) == "3\n"
    with pytest.raises(CellError):
        kernel.execute(DIE, deadline=SECONDS)
    shown = kernel.execute("%cluster attach", deadline=SECONDS)
    assert "Dask has ended on cluster 'main'; `%cluster dask` starts it on 'main'\n" in shown
    assert "already" not in shown
    kernel.execute("client = %cluster dask", deadline=SECONDS)
    assert kernel.execute(COMPUTE, deadline=SECONDS) == "3\n"
