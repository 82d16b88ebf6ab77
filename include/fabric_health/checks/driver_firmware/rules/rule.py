"""What every rule shares: how it makes a finding, and the documents that rules come from."""

from __future__ import annotations

from fabric_health.checks.driver_firmware.view import Part, clip
from fabric_health.datasets.tables import Finding, FindingKind, Severity, finding

CHECK = "driver_firmware"

FABRIC_MANAGER = "https://docs.nvidia.com/datacenter/tesla/fabric-manager-user-guide/index.html"
NVIDIA_SMI = "https://docs.nvidia.com/deploy/nvidia-smi/index.html"
PERSISTENCE = "https://docs.nvidia.com/deploy/driver-persistence/index.html"
MEMORY_ERRORS = "https://docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt/index.html"
NVML = "https://docs.nvidia.com/deploy/nvml-api/index.html"
GSP = "https://download.nvidia.com/XFree86/Linux-x86_64/570.86.16/README/gsp.html"
MIG = "https://docs.nvidia.com/datacenter/tesla/mig-user-guide/index.html"
NCCL = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html"
AZURE_NHC = "https://github.com/Azure/azurehpc-health-checks"
NVSENTINEL = "https://github.com/NVIDIA/NVSentinel"
RDMA_CORE = "https://github.com/linux-rdma/rdma-core"
LINUX_ROCE_MTU = "https://github.com/torvalds/linux/blob/master/include/rdma/ib_addr.h"
LINUX_ROCE_STATE = "https://github.com/torvalds/linux/blob/master/drivers/infiniband/hw/mlx5/main.c"
IBQUERYERRORS = "https://man7.org/linux/man-pages/man8/ibqueryerrors.8.html"
NFS_RDMA = "https://docs.kernel.org/admin-guide/nfs/nfs-rdma.html"
NVME = "https://nvmexpress.org/specification/nvm-express-base-specification/"
SMARTCTL = "https://www.smartmontools.org/wiki/NVMe_Support"
MFT = "https://docs.nvidia.com/networking/software/firmware-management/index.html"
SITE_FILE = "site file"


def deviation(
    part: Part,
    rule: str,
    metric: str,
    severity: Severity,
    summary: str,
    *,
    expected: str | None,
    actual: str | None,
    action: str,
    source: str,
    command: str | None = None,
    explained_by: str | None = None,
) -> Finding:
    """Make a finding of this check on a node or a part of it; texts that came from the node are cut to one line."""
    return finding(
        check=CHECK,
        rule=rule,
        unit=part.unit,
        unit_kind=part.kind,
        metric=metric,
        severity=severity,
        kind=FindingKind.DEVIATION,
        summary=clip(summary),
        expected=None if expected is None else clip(expected),
        actual=None if actual is None else clip(actual),
        action=action,
        source=source,
        command=command,
        explained_by=explained_by,
    )
