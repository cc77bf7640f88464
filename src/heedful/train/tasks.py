"""Which task the settings describe."""

from heedful.config import RunConfig
from heedful.train.task import Task
from heedful.train.translation import Translation


def task_for(config: RunConfig) -> type[Task]:
    """The kind of task, from the files that are given."""
    return Translation
