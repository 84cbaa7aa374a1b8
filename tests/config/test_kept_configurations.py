"""A configuration that was kept beside a result, read again."""

import pytest

from common import UserError
from config.compose import compose_plain
from config.files import require_name
from config.schema import validate_cell


def test_a_class_that_is_not_found_is_named_before_an_edit_is_suspected():
    """Without its module a cell has another name, though nobody edited its configuration."""
    config = validate_cell(compose_plain("train", ["task=lis"]))
    content = {"cell": "0123456789ab", "model": {"mixer": {"_target_": "no_such_module.Mixer"}}}
    with pytest.raises(UserError, match=r"config.yaml: model\.mixer\._target_.*no_such_module"):
        require_name(config, content, "config.yaml")
    with pytest.raises(UserError, match="was it edited"):
        require_name(config, {"cell": "0123456789ab"}, "config.yaml")
