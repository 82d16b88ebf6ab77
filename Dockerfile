# fabric-health on the official Airflow image. Build: docker build -t fabric-health .
# Pin the base by digest in your registry's mirror; the tag below names the version that the lock was made for.
ARG AIRFLOW_IMAGE=apache/airflow:3.3.2-python3.11
FROM ${AIRFLOW_IMAGE}

USER root
RUN install -d -o airflow -g 0 -m 0775 /opt/fabric-health
USER airflow

WORKDIR /opt/fabric-health
# The lock first: it changes less often than the code, so the layer is kept. The image brings uv.
COPY --chown=airflow:0 requirements.txt pyproject.toml README.md LICENSE ./
RUN uv pip install --no-cache --require-hashes -r requirements.txt

COPY --chown=airflow:0 include ./include
RUN uv pip install --no-cache --no-deps .
COPY --chown=airflow:0 dags ./dags
COPY --chown=airflow:0 plugins ./plugins
COPY --chown=airflow:0 deploy/pools.json ./deploy/pools.json

ENV AIRFLOW__CORE__DAGS_FOLDER=/opt/fabric-health/dags \
    AIRFLOW__CORE__PLUGINS_FOLDER=/opt/fabric-health/plugins \
    AIRFLOW__CORE__LOAD_EXAMPLES=False \
    GX_ANALYTICS_ENABLED=false \
    FABRIC_HEALTH_SITE_FILES="lab=/opt/fabric-health/include/sites/lab.yaml"
