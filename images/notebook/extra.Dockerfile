# The notebook image with additional packages for a course or a user; see images/extra.py.
ARG PARENT
FROM $PARENT
USER root
RUN --mount=type=bind,target=/extra \
    pip install -q --no-cache-dir --no-index --find-links /extra/wheels -c /extra/constraints.txt -r /extra/requirements.txt \
    && pip check
USER user
ARG NAME
ARG VERSION
ARG REVISION
LABEL farandole.extra=$NAME org.opencontainers.image.version=$VERSION org.opencontainers.image.revision=$REVISION
