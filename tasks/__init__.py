"""Task generators: one file per task, the interface in ``task.py``, data sets in ``data.py``."""
