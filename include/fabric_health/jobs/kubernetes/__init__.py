"""The Kubernetes backend: manifests from job descriptions, what their states mean, and the jobs' framed logs."""
