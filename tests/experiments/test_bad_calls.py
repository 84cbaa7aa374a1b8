"""Typing mistakes and missing files give a one-line error and status 2 before anything runs."""

import pytest
from processes import ROOT

from experiments.table import read_table

SMALL = (
    "task.size=2 model.num_layers=1 model.num_heads=2 recipe.steps=4 recipe.validate_every=2 "
    "data.train=300 data.validation=20 data.test=20"
).split()
CELL = ["task=arithmetic", "model.dim=8", "logger=none", *SMALL]
LISTED = "overrides=[{}]".format(",".join(f'"{word}"' for word in SMALL))
SWEEP = ["experiment=quick", "only.dim=8", "only.seed=0", "logger=none", "plot=false", LISTED]


def replaced(words, changes):
    """Return `words` with `changes` in place of the words with the same keys."""
    keys = {change.lstrip("+~").partition("=")[0] for change in changes}
    return [*(word for word in words if word.partition("=")[0] not in keys), *changes]


BAD_CELLS = [
    ("task=chess", "--config-dir=DIR adds your own"), ("nonsense", "nonsense"),
    ("experiment=quick", "sweep.py runs experiments"), ("modle=lis", "did you mean model?"),
    ("thread=2", "did you mean threads?"), ("precision=float32", "did you mean recipe.precision?"),
    ("task.colour=red", "colour"), ("+task.colour=red", "colour"), ("task.r=2", "another task has"),
    ("~task._target_", "task._target_: missing"),
    ("model.mixer.gain=2", "no such key; +model.mixer.gain=VALUE adds it"),
    ("recipe.stepz=5", "did you mean recipe.steps?"), ("modle.dim=8", "did you mean model.dim?"),
    ("task.size=0", "size"),
    ("model.dim=0", "dim"), ("model.dim=15 model.num_heads=1", "odd"),
    ("model.mixer._target_=models.absent.Attention", "models.absent"),
    ("model.mixer._target_=models.standard.Nothing", "Nothing"),
    ("model.mixer._target_=Attention", "not found; write a dotted path"),
    ("model.mixer._target_=os.system", "os.system"), ("recipe.learning_rate=fast", "learning_rate"),
    ("recipe.steps=null", "exactly one"), ("data.test=2000000000", "data.test"),
    ("data.train=0", "data.train=0"), ("data.test=0", "data.test=0"),
    ("data.file=absent.txt", "absent.txt"), ("seed=-1", "seed"), ("device=tpu", "tpu"),
    ("compile=maybe", "error: compile='maybe'"), ("measure.file=absent.txt", "absent.txt"),
    ("device=cuda:99", "device=cuda:99"), ("threads=0", "threads"),
    ("evaluation_memory_mb=plenty", "evaluation_memory_mb"),
    ("experiment_name=../elsewhere", "experiment_name"), ("logger.mode=loud", "logger.mode"),
    ("logger.mode=[a]", "logger.mode"),
    ("data.file=a{b", "write \"data.file='VALUE'\""), ("quick", "write \"KEY='VALUE'\""),
    ("measure.task.size=9", "capacity"), ("measure.split=dev", "measure.split"),
    ("measure.count=21", "count=21: the test set has 20"),
    ("measure.state_format=float7", "format float7"), ("+model.layers=3", "layers"),
    ("model=hybrid model.mixers=[based,standard]", "based has no single mixer"),
    ("model=[standard,linear]", "model: give one name"),
    ("recipe.rates={hiden:{factor:2}}", "recipe.rates.hiden: no such key"),
    ("model=hybrid model.mixers=[linaer]", "Could not find 'model/linaer'"),
    ("model.position=rope model.dim=6", "even head_dim"), ("model.position=up", "position='up'"),
    ("model=linear +model.mixer.chunk_sise=3", "did you mean chunk_size?"),
    ("+model.mixer.dim=3", "model.mixer.dim=3: unknown"),
    ("model=hybrid model.mixers=[{_target_:models.lstm.LSTM,gain:3}]", "model.mixers.0.gain=3"),
    ("model=delta_net model.mixer.num_householder=1.0", "model.mixer.num_householder=1.0"),
    ("model=delta_net model.mixer.num_householder=true", "model.mixer.num_householder=True"),
    ("model.mixer=null", "set exactly one"), ("+model.mixers=[linear]", "set exactly one"),
    ("model=hybrid model.mixers=[]", "0 mixers; must be 1 to model.num_layers=1"),
    ("model=hybrid", "4 mixers; must be 1 to model.num_layers=1"),
    ("model=lstm model.position=rope", "LSTM has no rotation"),
    ("time_limit_seconds=-1", "time_limit"), ("task._target_=tasks.data.DataConfig", "subclass"),
    ("recipe.rates.hidden.factor=0", "factor"),
    ("force=flase", "force"), ("results_dir=/dev/null", "/dev/null"),
    ("runs_dir=/dev/null", "/dev/null"),
]  # fmt: skip


@pytest.mark.parametrize(("words", "named"), BAD_CELLS, ids=[words for words, _ in BAD_CELLS])
def test_a_bad_cell(command, tmp_path, words, named):
    assert named in command("train.py", *replaced(CELL, words.split())).line
    assert not list(tmp_path.glob("runs/*/checkpoint.pt"))
    assert not (tmp_path / "outputs").exists()


BAD_SWEEPS = [
    ("experiment=qiuck", "did you mean quick?"), ("model=[gla,lstm]", "model: give one name"),
    ("hydra.launcher.job=1", "job: no such key"),
    ("only.model=mamba", "values: linear, sparse, standard"),
    ("only.dim=[8,99]", "only.dim=99: no cell matches; values: 8, 16, 32"),
    ("+only.colour=red", "no cell has this key"),
    ("experiment=tracking only.dim=32 only.model=gla +only.model.position=rope", "only.model=gla"),
    ("experiment=gates +only.model.mixer.A_range=[0,2]", "no cell matches"),
    ("only=lis", "only"), ("status=perhaps", "status"),
    ("strategy=best", "strategy"), ("max_hours=-1", "max_hours"),
    ("max_hours=1 hydra/launcher=basic", "max_hours"), ("threads=0", "threads"),
    ("overrides=recipe.steps=9", "overrides=recipe.steps=9"),
    ('overrides=["precision=float32"]', "did you mean recipe.precision?"),
    ('overrides=["task.size=two"]', "size"), ('overrides=["recipe.steps=1,2"]', "recipe.steps=1,2"),
    ('overrides=["recipe.steps=["]', "recipe.steps=["),
    ("hydra.launcher.jobs=-1", "hydra.launcher.jobs=-1"),
    ("experiment.figures=[heatmpa]", "did you mean heatmap?"),
    ("+experiment.facets.rows=[taks]", "did you mean task?"), ("task=lis", "mean only.task?"),
    ("device=cuda:99", "device=cuda:99"), ('overrides=["model.num_heads=3"]', "num_heads=3"),
    ("dryrun=true", "did you mean dry_run?"), ("thread=2", "did you mean threads?"),
    ("only.model.dim=8", "did you mean only.dim?"),
    ("only.model.position=rope", "+only.model.position=VALUE filters by it"),
    ("model=gla model.dim=9", "model.dim=9: a sweep takes only model=NAME"),
]  # fmt: skip


@pytest.mark.parametrize(("words", "named"), BAD_SWEEPS, ids=[words for words, _ in BAD_SWEEPS])
def test_a_bad_sweep(command, tmp_path, words, named):
    assert named in command("sweep.py", *replaced(SWEEP, words.split())).line
    assert not (tmp_path / "runs").exists() and not (tmp_path / "outputs").exists()


@pytest.mark.parametrize(
    ("group", "content", "named"),
    [("model", "dim: [", "mine.yaml"),
     ("model", "defaults: [linear]", "its YAML has name: linear; write name: mine"),
     ("machine", "# @package _global_\ndefaults: [default]\ndevice: cuda:99", "device=cuda:99")],
)  # fmt: skip
def test_a_wrong_file_in_config_dir(command, tmp_path, group, content, named):
    (tmp_path / "conf" / group).mkdir(parents=True)
    (tmp_path / "conf" / group / "mine.yaml").write_text(content)
    for program, *words in (["train.py", *CELL], ["sweep.py", *SWEEP]):
        assert named in command(program, "--config-dir=conf", *words, f"{group}=mine").line


def test_a_sweep_without_an_experiment_lists_them(command):
    assert "experiment=NAME is missing; known: bits, bits_mixers" in command("sweep.py").line


def test_bad_evaluations(command, tmp_path):
    assert command("train.py", *CELL).status == 0
    [folder] = (tmp_path / "runs").iterdir()

    def line(*words):
        return command("evaluate.py", f"run={folder}", *words).line

    assert "run=VALUE" in command("evaluate.py").line
    assert "runs/nowhere: no such run" in command("evaluate.py", "run=runs/nowhere").line
    (tmp_path / "bad.txt").write_text("1 + 1 = 3 \n")
    for words, named in [
        ("count=0", "count"), ("count=21", "count"), ("show=-1", "show"), ("threads=0", "threads"),
        ("trust=perhaps", "trust"), ("task.size=3", "capacity"), ("task.size=two", "size"),
        ("data.file=absent.txt", "absent.txt"), ("data.file=bad.txt", "bad.txt"),
        ("data.file=bad.txt count=5", "takes no split or count"), ("out=.", "directory"),
    ]:  # fmt: skip
        assert named in line(*words.split())
    (folder / "checkpoint.pt").write_bytes(b"half of it")
    assert "damaged checkpoint" in line()
    (folder / "checkpoint.pt").unlink()
    assert "no checkpoint" in line()
    (folder / "training.json").unlink()
    assert "training is not finished" in line()
    (folder / "config.yaml").write_text("- a list")
    assert "config.yaml" in line()


def test_published_cell_needs_an_exact_name_and_takes_no_other_settings(command):
    name = f"quick/{read_table(ROOT / 'results' / 'quick')['cell'][0]}"
    for absent, said in ((f"{name[:-1]}x", f"did you mean {name}?"), ("123", "not found")):
        assert said in command("train.py", f"cell={absent}").line
    refused = command("train.py", f"cell={name}", "model.dim=16", "logger=none")
    assert "model.dim=16: cell= runs a cell exactly" in refused.line


@pytest.mark.parametrize("launcher", ["local", "basic"])
def test_a_multirun_with_a_bad_value_runs_the_others_and_exits_2(command, tmp_path, launcher):
    words = replaced(CELL, ["task.size=0,2"])
    outcome = command("train.py", "-m", f"hydra/launcher={launcher}", *words)
    assert outcome.status == 2
    assert len(list(tmp_path.glob("runs/*/record.json"))) == 1


def test_slurm_launcher_without_slurm(command, monkeypatch):
    monkeypatch.setenv("PATH", "")
    assert '"srun"' in command("train.py", "-m", "hydra/launcher=slurm", *CELL).line


@pytest.mark.parametrize("more", [[], ["-m", "hydra/launcher=local"]])
def test_a_bad_path_is_no_failure_of_the_cell(command, tmp_path, more):
    (tmp_path / "file").touch()
    assert "file: File exists" in command("train.py", *more, *CELL, "data_dir=file").err
    assert not list(tmp_path.glob("runs/*/record.json"))
