"""transformers talks a lot, and warns of packages that are not needed here."""

import pytest

transformers = pytest.importorskip("transformers")
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()


def pytest_collection_modifyitems(items):
    for item in items:
        if "interop" in item.path.parts:
            item.add_marker(pytest.mark.filterwarnings("ignore:Recommended. pip install sacremoses"))
