"""The custom resources that jobs become, as far as our manifests use them: structural schemas after the projects' own.

Fields that ours do not use are left out, so that a field which is misspelt, or which a project does not have, is
refused (offline) or pruned (by the API server) and the test fails.
"""

from __future__ import annotations

from typing import Any

from fabric_health.jobs.kubernetes.kinds import ELASTIC_JOB, MPI_JOB, VOLCANO_JOB, Kind

Schema = dict[str, Any]
STRING: Schema = {"type": "string"}
INTEGER: Schema = {"type": "integer", "format": "int32", "minimum": 0}
# A pod template is checked against the core schemas instead.
TEMPLATE: Schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def one_of(*values: str) -> Schema:
    return {"type": "string", "enum": list(values)}


def fields(required: tuple[str, ...] = (), **properties: Schema) -> Schema:
    made: Schema = {"type": "object", "properties": properties}
    return {**made, "required": list(required)} if required else made


def array(items: Schema) -> Schema:
    return {"type": "array", "items": items}


EVENTS = ("*", "PodFailed", "PodEvicted", "PodPending", "PodRunning", "Unknown", "TaskCompleted", "TaskFailed")
ACTIONS = ("AbortJob", "RestartJob", "RestartTask", "RestartPod", "TerminateJob", "CompleteJob", "ResumeJob")
VOLCANO_POLICY = fields(
    ("action",), event=one_of(*EVENTS), events=array(one_of(*EVENTS)), action=one_of(*ACTIONS), exitCode=INTEGER
)
VOLCANO = fields(
    ("tasks",),
    schedulerName=STRING,
    queue=STRING,
    minAvailable=INTEGER,
    maxRetry=INTEGER,
    ttlSecondsAfterFinished=INTEGER,
    priorityClassName=STRING,
    plugins={"type": "object", "additionalProperties": array(STRING)},
    policies=array(VOLCANO_POLICY),
    tasks=array(
        fields(
            ("name", "template"),
            name={"type": "string", "pattern": r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"},
            replicas=INTEGER,
            minAvailable=INTEGER,
            policies=array(VOLCANO_POLICY),
            template=TEMPLATE,
        )
    ),
)
MPI_REPLICA = fields(("template",), replicas=INTEGER, restartPolicy=one_of("Never", "OnFailure"), template=TEMPLATE)
MPI = fields(
    ("mpiReplicaSpecs",),
    slotsPerWorker=INTEGER,
    runLauncherAsWorker={"type": "boolean"},
    mpiImplementation=one_of("OpenMPI", "Intel", "MPICH"),
    launcherCreationPolicy=one_of("AtStartup", "WaitForWorkersReady"),
    sshAuthMountPath=STRING,
    runPolicy=fields(
        cleanPodPolicy=one_of("None", "Running", "All"),
        ttlSecondsAfterFinished=INTEGER,
        activeDeadlineSeconds={"type": "integer", "format": "int64", "minimum": 1},
        backoffLimit=INTEGER,
        suspend={"type": "boolean"},
    ),
    mpiReplicaSpecs=fields(("Launcher",), Launcher=MPI_REPLICA, Worker=MPI_REPLICA),
)
TEXTS: Schema = {"type": "object", "additionalProperties": STRING}
ELASTIC = fields(
    ("replicaSpecs",),
    distributionStrategy=one_of("AllreduceStrategy", "ParameterServerStrategy"),
    optimizeMode=one_of("manual", "single-job", "cluster"),
    resourceLimits=TEXTS,
    brainService=STRING,
    suspend={"type": "boolean"},
    replicaSpecs={
        "type": "object",
        "additionalProperties": fields(
            replicas=INTEGER,
            # Of a template's metadata DLRover's schema keeps these, and prunes what else there is.
            template=fields(
                metadata=fields(
                    name=STRING, namespace=STRING, labels=TEXTS, annotations=TEXTS, finalizers=array(STRING)
                ),
                spec=TEMPLATE,
            ),
            restartPolicy=STRING,
            restartCount=INTEGER,
            restartTimeout=INTEGER,
            autoScale={"type": "boolean"},
            priority=STRING,
            BatchScheduler=STRING,
        ),
    },
)
SPECS: dict[Kind, Schema] = {VOLCANO_JOB: VOLCANO, MPI_JOB: MPI, ELASTIC_JOB: ELASTIC}


def crd(kind: Kind) -> dict[str, Any]:
    """Return the CustomResourceDefinition of a kind."""
    status: Schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{kind.plural}.{kind.group}"},
        "spec": {
            "group": kind.group,
            "scope": "Namespaced",
            "names": {"plural": kind.plural, "singular": kind.kind.lower(), "kind": kind.kind},
            "versions": [
                {
                    "name": kind.version,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "schema": {"openAPIV3Schema": fields(spec=SPECS[kind], status=status)},
                }
            ],
        },
    }


def strict(schema: Schema) -> Schema:
    """Return the schema with unknown fields refused where the API server would prune them."""
    if not isinstance(schema, dict):
        return schema
    made = {k: strict(v) if isinstance(v, dict) else v for k, v in schema.items()}
    if "properties" in schema and "additionalProperties" not in schema:
        made["properties"] = {k: strict(v) for k, v in schema["properties"].items()}
        made["additionalProperties"] = False
    return made
