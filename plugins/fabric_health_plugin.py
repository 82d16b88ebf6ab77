"""Registers the pages of fabric-health in Airflow's menu. Nothing else lives here."""

from airflow.plugins_manager import AirflowPlugin

from fabric_health.airflow import pages


class FabricHealthPlugin(AirflowPlugin):
    name = "fabric_health"
    fastapi_apps = [{"app": pages.app, "url_prefix": pages.PREFIX, "name": "fabric-health pages"}]  # noqa: RUF012
    external_views = [  # noqa: RUF012
        {
            "name": "Fabric health",
            "href": f"{pages.PREFIX}/",
            "destination": "nav",
            "url_route": "fabric-health",
            "category": "browse",
        }
    ]
