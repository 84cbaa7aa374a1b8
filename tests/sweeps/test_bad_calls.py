"""Contract 8: whatever a person gets wrong ends with one line that names it, and no run starts."""

import json
import re
import string

import pytest
import torch
from commands import TINY
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from common import UserError
from config.build import check_buildable
from config.compose import compose_plain
from config.grid import experiment_from
from config.schema import validate_cell

BAD_CELLS = [
    ("task=chess", "chess"),
    ("model=mamba", "mamba"),
    ("recipe=quickest", "quickest"),
    ("task.size=0", "size"),
    ("task.size=-3", "size"),
    ("task.size=two", "size"),
    ("task.size=2.5", "size"),
    ("task.format=prose", "format"),
    ("task.order=random", "order"),
    ("task.colour=red", "colour"),
    ("+task.colour=red", "colour"),
    ("model.dim=10 model.num_heads=4", "dim"),
    ("model.dim=0", "dim"),
    ("model.num_layers=0", "num_layers"),
    ("model.num_layers=1000000000000", "num_layers"),
    ("task.size=1000000000000", "size"),
    ("task.modulus=1000000007", "modulus"),
    ("model.position=learned", "position"),
    ("+model.mixer.block_sise=4", "block_sise"),
    ("model=sparse model.mixer.block_size=-1", "block_size"),
    ("model.mixer._target_=models.absent.Attention", "models.absent"),
    ("model.mixer._target_=models.standard.Attention", "Attention"),
    ("recipe.learning_rate=0", "learning_rate"),
    ("recipe.learning_rate=fast", "learning_rate"),
    ("recipe.stepz=5", "stepz"),
    ("+recipe.stepz=5", "stepz"),
    ("recipe.epochs=3", "exactly one"),
    ("recipe.optimizer=lion", "optimizer"),
    ("data.train=0", "data.train"),
    ("data.file=absent.txt", "absent.txt"),
    ("seed=-1", "seed"),
    ("seed=true", "seed"),
    ("seeds=[0,0]", "seeds"),
    ("seeds=[]", "seeds"),
    ("seeds=[0,x]", "seeds"),
    ("seeds=0,", "seeds"),
    ("seeds=0,0", "seeds"),
    ("seed=1 seeds=[0,1]", "one of them"),
    ("seeds=[0,1] recipe.steps=0", "steps"),
    ("compile=maybe", "compile=maybe: must be auto, true, false or graphs"),
    ("compile=1", "compile"),
    ("micro_batch_size=0", "micro_batch_size=0: must be from 1"),
    ("micro_batch_size=8 compile=graphs", "not together with compile=graphs"),
    ("device=tpu", "tpu"),
    ("device=cuda:99", "cuda:99"),
    ("threads=0", "threads"),
    ("evaluation_memory_mb=0", "evaluation_memory_mb=0: must be auto"),
    ("evaluation_memory_mb=plenty", "evaluation_memory_mb=plenty: must be auto"),
    ("experiment_name=../elsewhere", "experiment_name"),
    ("logger.mode=loud", "logger.mode"),
    ("nonsense", "nonsense"),
    ("model=null", "model=null: must be the name of a file"),
    ("task=[1,2]", "error: task=[1,2]: must be the name of a file"),
    ("model=[standard,linear]", "model=[standard,linear]: must be the name of a file"),
    ("task=nan", "error: task=nan: must be the name of a file"),
    ("recipe=TRUE", "error: recipe=TRUE: must be the name of a file"),
    ("~model=''", "must be the name of a file"),
    ("data={a:1}", "data={a:1}: must be the name of a file"),
    ("recipe=", "recipe=: must be the name of a file"),
    ("~recipe=[]", "error: ~recipe=[]: must be the name of a file"),
    ("~recipe=1e-9", "error: ~recipe=1e-9: must be the name of a file"),
    ("experiment=quick", "python sweep.py experiment=NAME"),
    ("model.mixer._target_=os.system", "not a subclass of models.mixer.Mixer"),
    ("measure.task.siz=3", "measure.task.size"),
    ("measure.task.size=9", "task.capacity"),
    ("measure.split=dev", "measure.split"),
    ("measure.file=/dev/zero", "no regular file"),
    ("data.file=/dev/zero", "no regular file"),
    ("measure.count=0", "measure.count"),
    ("config=3", "config=3"),
    ("config=absent.yaml", "absent.yaml"),
    ("runs_dir=''", "runs_dir"),
    ("data.train=1000000 task.size=1", "distinct"),
    ("recipe.steps=1000000000000000000000", "must be at most 1,000,000,000: a millisecond each"),
    ("recipe.learning_rate=1e40", "must be at most 1e+30: float32 ends"),
    ("model.dim=65536", "parameters need 576 GiB for weights, gradients and optimiser"),
    ("threads=1000", "cores"),
    ("device=abc", "device=abc: must be auto, cpu, cuda or cuda:N"),
    ("data.file=3", "data.file=3"),
    ("runs_dir='a\tb'", "runs_dir"),
    ("runs_dir=/proc/x", "runs_dir: /proc/x: nothing can be made there"),
    ("results_dir=/proc/x", "results_dir: /proc/x/manual: nothing can be made there"),
    ("data_dir=/proc/x", "data_dir: /proc/x: nothing can be made there"),
    ("force=flase", "force"),
]


@pytest.mark.parametrize(("words", "named"), BAD_CELLS, ids=[words for words, _ in BAD_CELLS])
def test_bad_cell_is_one_line_exit_2_and_starts_nothing(command, words, named):
    given_keys = {word.lstrip("+").split("=")[0] for word in words.split()}
    arguments = [word for word in TINY if word.split("=")[0] not in given_keys]
    outcome = command("train.py", *arguments, *words.split())
    assert outcome.status == 2
    assert named in outcome.line
    assert not list(command.folder.glob("runs/*/record.json"))
    assert not (command.folder / "results").exists()


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("recipe.stepz=5", "unknown key recipe.stepz; did you mean recipe.steps?"),
        ("sede=1", "unknown key sede; did you mean seed?"),
        ("task.siz=1", "unknown key task.siz; did you mean task.size?"),
        ("data.colour=red", "unknown key data.colour; there are "),
        ("model.mixer.block_size=4", "append to your config use +model.mixer.block_size=4"),
    ],
)
def test_a_mistyped_key_is_told_from_a_missing_one(command, word, said):
    outcome = command("train.py", *TINY, word)
    assert outcome.status == 2
    assert said in outcome.line


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ([], "experiment"),
        (["experiment=figure9"], "figure9"),
        (["experiment=quick", "only.model=mamba"], "there are linear, sparse, standard"),
        (["experiment=quick", "only=lis"], "only='lis': has keys of its own; write only.KEY=VALUE"),
        (["experiment=quick", "retry_failed=flase"], "retry_failed"),
        (["experiment=quick", "strategy=best"], "strategy='best': must be 'grid' or 'frontier'"),
        (["experiment=quick", 'overrides="recipe.steps=9"'], "overrides"),
        (["experiment=quick", "max_hours=-1"], "max_hours"),
        (["experiment=quick", "max_hours=soon"], "max_hours"),
        (["experiment=quick", "threads=0"], "threads"),
        (["experiment=quick", "only.task.size=2"], "no cell matches; there are 4, 12"),
        (["experiment=quick", "only.task.colour=2"], "no cell has a setting of that name"),
        (["experiment=quick", "only.colour=red"], "colour"),
        (["experiment=quick", 'overrides=["recipe.stepz=1"]'], "stepz"),
        (["experiment=quick", 'overrides=["seed=1,2"]'], "one value"),
        (["experiment=quick", 'overrides=["seeds=[1,2]"]'], "seed: [0, 1, 2]"),
        (["experiment=quick", "compile=sometimes"], "compile"),
        (["experiment=quick", "hydra/launcher=cloud"], "cloud"),
        (["experiment=quick", 'overrides=["data.train=10000000"]'], "too few distinct prompts"),
        (["experiment=quick", "hydra.launcher.jobs=-1"], "error: hydra.launcher.jobs=-1: must"),
        (["experiment=quick", "hydra.launcher.jobs=abc"], "error: hydra.launcher.jobs=abc: must"),
        (["experiment=quick", "hydra.launcher.jobs=1.5"], "error: hydra.launcher.jobs=1.5: must"),
        (["experiment=quick", "device=abc"], "device=abc: must be auto, cpu, cuda or cuda:N"),
        (["experiment=quick", "device=cuda:99"], "CUDA devices here"),
        (["experiment=quick", "threads=1000"], "cores"),
        (["experiment=quick", "experiment.figures=[heatmop]"], "unknown figure heatmop; there are"),
        (["experiment=quick", "experiment.figures=[heatmop]"], "report; did you mean heatmap?"),
        (["experiment=quick", "only.task=lsi"], "there are lis"),
        (["experiment=quick", "runs_dir=''"], "runs_dir"),
        (["experiment=quick", "runs_dir=/proc/x"], "runs_dir: /proc/x: nothing can be made"),
        (["experiment=quick", "results_dir=/proc/x"], "results_dir: /proc/x/quick: nothing can be"),
        (["experiment=quick", "--colour"], "unrecognized arguments: --colour"),
    ],
)
def test_bad_sweep(command, arguments, named):
    outcome = command("sweep.py", *arguments)
    assert outcome.status == 2
    assert named in outcome.line
    assert not (command.folder / "runs").exists()


@pytest.mark.parametrize(
    ("program", "key"),
    [("train.py", "force: false"), ("sweep.py", "max_hours: null"), ("evaluate.py", "count: null")],
)
def test_help_lists_keys_and_names(command, program, key):
    outcome = command(program, "--help")
    assert outcome.status == 0 and outcome.err == ""
    assert f"python {program} " in outcome.out and key in outcome.out
    known = re.findall(r"^experiment: (.*)$", outcome.out, re.MULTILINE)[-1]
    assert {"figure1", "quick"} <= set(known.split(", "))


def test_overrides_may_stand_on_both_sides_of_the_multirun_mark(command):
    assert command("train.py", "task=chess", "-m", "seed=1").line.startswith(
        "error: no task named 'chess'"
    )


def test_a_multirun_says_one_line_for_a_bad_value(command):
    assert command("train.py", "-m", *TINY, "seed=-1").line == "error: seed=-1: must be at least 0"


@pytest.fixture
def finished(command):
    assert command("train.py", *TINY).status == 0
    (run,) = (command.folder / "runs").glob("*/record.json")
    return run.parent


def test_bad_evaluations(command, finished):
    def line(*arguments):
        outcome = command("evaluate.py", *arguments)
        assert outcome.status == 2
        return outcome.line

    assert "run" in line()
    assert "absent" in line("run=runs/absent")
    assert "run=1844408: no such run" in line("run=1844408")
    assert "run" in line("run=[a,b]")
    assert "count" in line(f"run={finished}", "count=0")
    said = line(f"run={finished}", "data.file=some.txt", "count=5")
    assert said == "error: data.file=some.txt: all of a file is measured, without count"
    assert "out: /proc/x: nothing can be made there" in line(f"run={finished}", "out=/proc/x")
    assert "absent.txt" in line(f"run={finished}", "data.file=absent.txt")
    (command.folder / "bad.txt").write_text("1 + 1 = 3 \n")
    assert "bad.txt" in line(f"run={finished}", "data.file=bad.txt")
    checkpoint = finished / "checkpoint.pt"
    whole = checkpoint.read_bytes()
    checkpoint.write_bytes(whole[:500])
    said = line(f"run={finished}")
    assert "damaged checkpoint" in said and said.endswith("config.yaml force=true trains it again")
    torch.save({"something": "else"}, checkpoint)
    assert "not a checkpoint" in line(f"run={finished}")
    checkpoint.unlink()
    said = line(f"run={finished}")
    assert "no checkpoint" in said and "force=true trains it again" in said
    checkpoint.write_bytes(whole)
    (finished / "config.yaml").write_text("{: broken")
    assert "config.yaml" in line(f"run={finished}")


def test_evaluation_of_a_finished_run_repeats_its_figures(command, finished):
    record = json.loads((finished / "record.json").read_text())
    outcome = command("evaluate.py", f"run={finished}")
    last = json.loads(outcome.out.splitlines()[-1])
    for key in ("answer_accuracy", "answer_accuracy_low", "answer_accuracy_high"):
        assert last[key] == record[key]
    assert last["chain_exact_match"] == record["chain_exact_match"]
    assert last["n_test"] == 20
    assert last["seconds"] > 0


def test_a_results_folder_that_is_a_file(command):
    (command.folder / "results").write_text("in the way")
    outcome = command("train.py", *TINY)
    assert outcome.status in (1, 2)
    assert "results" in outcome.line


PLAIN = compose_plain("train")
SECTIONS = ("task", "model", "recipe", "data", "logger")
junk = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.text(string.printable, max_size=8),
    st.lists(st.integers(), max_size=3),
    st.dictionaries(st.text("abc", max_size=3), st.integers(), max_size=2),
)


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(section=st.sampled_from(SECTIONS), data=st.data())
def test_any_value_anywhere_is_a_cell_or_one_clear_line(section, data):
    """Configurations by the hundred: each is built, or refused by `UserError`, never otherwise."""
    part = dict(PLAIN[section])
    key = data.draw(st.sampled_from([*sorted(part), "unheard_of"]))
    part[key] = data.draw(junk)
    try:
        check_buildable(validate_cell({**PLAIN, section: part}))
    except UserError as error:
        assert "\n" not in str(error)
        assert key in str(error) or section in str(error)
    else:
        assert key != "unheard_of"


@given(content=st.dictionaries(st.sampled_from(["grid", "base", "exclude", "shape"]), junk))
@settings(max_examples=200, deadline=None)
def test_any_experiment_is_read_or_refused(content):
    try:
        experiment_from("made_up", {"description": "x", **content})
    except UserError as error:
        assert "\n" not in str(error)
