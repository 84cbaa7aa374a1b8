"""Which settings are part of a cell's name."""

import pytest

from common import UserError, locate
from experiments.config import require_trusted
from experiments.names import cell_name, run_name
from tasks.sources import sources


def test_name_ignores_machine_settings_folders_and_default_measurement(tiny):
    words = ["runs_dir=x", "data_dir=y", "threads=2", "device=cpu", "checkpoint_seconds=5"]
    for own in (words, ["measure.count=60"]):  # the whole test set
        assert cell_name(tiny(*own)) == cell_name(tiny()) == run_name(tiny())


def test_measurements_have_their_own_cell_names_but_the_same_run_name(tiny):
    words = [[], ["measure.count=30"], ["measure.split=validation"], ["measure.state_format=int8"],
             ["measure.state_format=int9"], ["measure.weight_format=int8"]]  # fmt: skip
    cells = [tiny(*word) for word in words]
    assert len({cell_name(cell) for cell in cells}) == 6
    assert len({run_name(cell) for cell in cells}) == 1


PLACES = [
    ["model.mixer._target_=pack.mix.mixer.Mine"], ["task._target_=pack.mix.mixer.Mine"],
    ["model=hybrid", "model.mixers=[{_target_: pack.mix.mixer.Mine}]"],
]  # fmt: skip


def test_editing_an_external_class_or_its_imports_changes_the_name(tiny, tmp_path, monkeypatch):
    """Imports from its package and beside it are followed, loaded or not."""
    monkeypatch.syspath_prepend(tmp_path)
    files = {
        "pack/mix/mixer.py": "import models.mixer, torch\nfrom .. import near\n"
        "class Mine:\n    def forward(self):\n        from pack.late import x",
        "pack/near.py": "from .deep import tool\nimport lib.sub, plots",
        "pack/deep/__init__.py": "from . import tool",
        "pack/deep/tool.py": "import other", "pack/late.py": "x = 1", "pack/unused.py": "",
        "pack/__init__.py": "", "other.py": "", "lib/__init__.py": "", "lib/sub.py": "",
        "plots.py": "",
    }  # fmt: skip
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    found = sources(locate("pack.mix.mixer.Mine", ""))
    assert set(found) == {
        "pack", "pack.mix.mixer", "pack.near", "pack.deep", "pack.deep.tool", "pack.late", "other",
        "lib", "lib.sub",
    }  # fmt: skip
    names = {cell_name(tiny(*words)) for words in PLACES}
    assert names == {cell_name(tiny(*words)) for words in PLACES}
    (tmp_path / "pack" / "late.py").write_text("x = 2")
    changed = sources(locate("pack.mix.mixer.Mine", ""))
    assert {name for name in found if found[name] != changed[name]} == {"pack.late"}
    assert not names & {cell_name(tiny(*words)) for words in PLACES}


def test_files_are_identified_by_content_not_path(tiny, tmp_path):
    for name in ("one.txt", "two.txt"):
        (tmp_path / name).write_text("5 6 7 8 <sep> 1 2 3 4 <sep> 4\n")
    names = {cell_name(tiny(f"measure.file={tmp_path / n}")) for n in ("one.txt", "two.txt")}
    assert len(names) == 1
    word = f"data.file={tmp_path / 'one.txt'}"
    assert cell_name(tiny(word)) != cell_name(tiny(word, "measure.count=60"))  # may not be all
    for key in ("data.file", "data.train_file"):
        names = [cell_name(tiny(f"{key}={tmp_path / n}")) for n in ("one.txt", "two.txt")]
        assert names[0] == names[1] != cell_name(tiny())
        (tmp_path / "two.txt").write_text("8 7 6 5 <sep> 1 1 1 1 <sep> 1\n")
        assert cell_name(tiny(f"{key}={tmp_path / 'two.txt'}")) != names[0]
        (tmp_path / "two.txt").write_text((tmp_path / "one.txt").read_text())


def test_external_classes_in_a_list_of_mixers_need_trust():
    foreign = {"model": {"mixers": [{"_target_": "models.x.Y"}, {"_target_": "os.system"}]}}
    require_trusted(foreign, "config.yaml", trust=True)
    with pytest.raises(UserError, match=r"os\.system"):
        require_trusted(foreign, "config.yaml", trust=False)
