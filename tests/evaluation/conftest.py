import pytest
from small_models import TASKS, trained_model


@pytest.fixture(scope="session")
def models():
    """Untrained, half-trained and trained models of every task and mixer, made once."""
    made = {}

    def model(task_name, mixer, steps):
        key = task_name, mixer, steps
        if key not in made:
            task = TASKS[task_name]()
            made[key] = task, trained_model(task, mixer, steps)
        return made[key]

    return model
