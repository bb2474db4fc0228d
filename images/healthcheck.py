"""Exit with status 0 if the container's server answers with an HTTP status below 500, otherwise with 1.

The request goes to 127.0.0.1, with the port and path of FARANDOLE_HEALTH_URL or of the single-user server's API.
"""

import http.client
import os
import sys

address = os.environ.get("FARANDOLE_HEALTH_URL") or os.environ.get("JUPYTERHUB_SERVICE_URL", "").rstrip("/") + "/api"
scheme, _, rest = address.partition("://")
place, _, path = rest.partition("/")
port = place.rpartition(":")[2] if ":" in place else "8888"
try:
    connection = http.client.HTTPConnection("127.0.0.1", int(port), timeout=5)
    connection.request("GET", f"/{path}")
    status = connection.getresponse().status
except (OSError, http.client.HTTPException, ValueError) as exc:
    sys.exit(f"{address}: {exc}")
sys.exit(0 if status < 500 else f"{address}: {status}")
