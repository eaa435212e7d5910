# The image of `phasewise`: nothing to build with, no root.
#
#   docker build -t phasewise .                                       what runs in a cluster
#   docker build -t phasewise-offline --build-arg REQUIREMENTS=requirements.txt .       every command
#   docker run --rm --read-only --tmpfs /tmp phasewise-offline dry-run
#
# CPU is what the kernels are compiled for: `generic` runs on every machine of the architecture; x86-64-v3 (since 2013)
# is faster where all nodes have it.
ARG PYTHON=3.11
ARG CPU=generic
ARG REQUIREMENTS=requirements-cluster.txt

# Dependencies first, and in a layer of their own to the end: they are nearly all of the image and change seldom.
FROM python:${PYTHON}-slim AS dependencies
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
RUN python -m venv /opt/phasewise
ENV PATH=/opt/phasewise/bin:$PATH
WORKDIR /src
COPY requirements*.txt ./
ARG REQUIREMENTS
RUN pip install --constraint requirements-lock.txt -r ${REQUIREMENTS}

FROM dependencies AS build
COPY pyproject.toml README.md LICENSE ./
COPY recommender recommender
COPY extender extender
RUN pip install --no-deps .
# What is compiled is compiled here, where the sources will lie: a pod that starts forecasts at once.
ARG CPU
ENV NUMBA_CPU_NAME=${CPU} NUMBA_CPU_FEATURES= NUMBA_CACHE_DIR=/opt/phasewise/kernels
WORKDIR /
RUN phasewise recommender --check
ARG REQUIREMENTS
RUN if [ ${REQUIREMENTS} = requirements.txt ]; then phasewise dry-run > /dev/null \
    && phasewise train /src/recommender/data/recordings -o /tmp/model > /dev/null; fi
# That the extender and what belongs to it can be loaded is seen here and not in the cluster.
RUN phasewise extender serve --help > /dev/null && phasewise extender explain --help > /dev/null \
    && phasewise controller --help > /dev/null && phasewise webhook --help > /dev/null
WORKDIR /opt/phasewise
RUN mkdir /ours && cp -a --parents bin/phasewise kernels /ours \
    && cp -a --parents lib/python*/site-packages/recommender lib/python*/site-packages/extender \
        lib/python*/site-packages/phasewise-*.dist-info /ours

FROM dependencies AS dependencies-alone
WORKDIR /opt/phasewise
# Tests of NumPy and Numba, and a client of the API server for asyncio, are a fifth of them; nothing imports them.
RUN pip uninstall --yes pip setuptools \
    && cd lib/python*/site-packages && rm -r kubernetes/aio \
    && find numba numpy -name tests -type d -prune -exec rm -r {} +

FROM python:${PYTHON}-slim
ARG CPU
ENV PATH=/opt/phasewise/start:/opt/phasewise/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 \
    NUMBA_CPU_NAME=${CPU} NUMBA_CPU_FEATURES= NUMBA_CACHE_DIR=/tmp/kernels \
    MPLCONFIGDIR=/tmp/matplotlib HOME=/tmp
RUN groupadd --gid 65532 phasewise && useradd --uid 65532 --gid 65532 --no-create-home --home-dir /tmp phasewise
COPY --from=dependencies-alone /opt/phasewise /opt/phasewise
COPY --from=build /ours /opt/phasewise
# Before `phasewise` itself on the PATH: takes what was compiled to where it can be used.
COPY scripts/start-in-image /opt/phasewise/start/phasewise
USER 65532:65532
WORKDIR /tmp
# Recommender, extender, gang controller, webhook, pages.
EXPOSE 8942 8943 8944 8945 8946
ENTRYPOINT ["phasewise"]
