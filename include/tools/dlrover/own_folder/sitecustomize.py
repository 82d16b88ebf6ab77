"""Gives each agent of a check of nodes a folder of its own for the check's times (see elastic_node_check.py).

DLRover keeps them at one fixed path, /tmp/dlrover/network_check, where agents on one machine would read each other's.
Nothing else of it is changed. A process that cannot do this must not go on: it would report another node's times.
"""

import os

_folder = os.environ.get("FABRIC_HEALTH_NODE_FOLDER")
if _folder:
    try:
        from dlrover.python.common.constants import ConfigPath

        ConfigPath.NETWORK_CHECK_DATA_DIR = _folder
    except Exception as error:
        raise SystemExit(f"the folder of the node's check cannot be set: {error}") from None
