"""Thin adapters between Airflow and the stages: the only part of the package that imports Airflow."""
