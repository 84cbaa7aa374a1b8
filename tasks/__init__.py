"""Task generators: one file per task, interface in `task.py`, data sets in `data.py`."""
