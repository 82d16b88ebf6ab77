"""Readers of what elastic training leaves: DLRover's logs, events of training, faults, pods, the job's own report."""
