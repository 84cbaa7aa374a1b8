"""A ready-made W&B workspace and report for an experiment, as code.

    python -m sweeps.wandb_workspace experiment=quick entity=NAME [project=cotcost]
        [results_dir=results]

Needs an account and the extra ``workspaces`` (``pip install cotcost[workspaces]``).  Both show the
runs that `sweeps.wandb_mirror` writes: group = experiment, job types ``cell`` and ``figures``.
The pictures are those drawn in ``results_dir``; draw first.
"""

from __future__ import annotations

if __name__ == "__main__":
    import quiet_interrupts  # noqa: F401

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import cli
from common import RunError, UserError
from config.grid import Experiment, load_experiment

USAGE = (
    "usage: python -m sweeps.wandb_workspace experiment=NAME entity=NAME [project=cotcost] "
    "[results_dir=results]"
)
CURVES = ("validation_chain_exact_match", "validation_loss", "train_loss", "learning_rate")


def build_workspace(experiment: Experiment, keys: Sequence[str], entity: str, project: str) -> Any:
    """Return the `Workspace` of ``experiment``: cells' curves, costs, pictures under ``keys``."""
    from wandb_workspaces import workspaces as ws

    return ws.Workspace(
        entity=entity,
        project=project,
        name=f"cotcost: {experiment.name}",
        sections=[
            ws.Section(name="Accuracy and cost", panels=cost_panels(), is_open=True),
            ws.Section(name="Learning curves", panels=curve_panels(), is_open=True),
            ws.Section(name="Figures", panels=figure_panels(keys), is_open=True),
        ],
        runset_settings=ws.RunsetSettings(
            filters=ws.And(ws.Metric("group") == experiment.name),
            groupby=[ws.Config("model.name")],
            order=[ws.Ordering(ws.Summary("answer_accuracy"), ascending=False)],
        ),
    )


def build_report(experiment: Experiment, keys: Sequence[str], entity: str, project: str) -> Any:
    """Return the `Report` of ``experiment``: pictures under ``keys``, then cost, then curves."""
    from wandb_workspaces import workspaces as ws
    from wandb_workspaces.reports import v2 as wr

    group = ws.Metric("group") == experiment.name
    cells, figures = (
        wr.Runset(entity, project, name, filters=ws.And(group, ws.Metric("jobType") == job_type))
        for name, job_type in (("cells", "cell"), ("figures", "figures"))
    )
    return wr.Report(
        entity=entity,
        project=project,
        title=f"cotcost: {experiment.name}",
        description=experiment.description,
        blocks=[
            wr.P(text=experiment.description),
            wr.P(text=wr.InlineCode(text=experiment.command)),
            wr.H2(text="Figures"),
            wr.PanelGrid(runsets=[figures], panels=figure_panels(keys)),
            wr.H2(text="Accuracy and cost"),
            wr.PanelGrid(runsets=[cells], panels=cost_panels()),
            wr.H2(text="Learning curves"),
            wr.PanelGrid(runsets=[cells], panels=curve_panels()),
        ],
    )


def cost_panels() -> list[Any]:
    """Return accuracy against FLOPs, and the parameters that lead to it."""
    from wandb_workspaces.reports import v2 as wr

    columns = [wr.Config(name) for name in ("model.name", "model.dim", "task.size")]
    columns += [wr.SummaryMetric(name) for name in ("flops_total", "answer_accuracy")]
    return [
        wr.ScatterPlot(
            title="answer accuracy against FLOPs of one forward pass",
            x=wr.SummaryMetric("flops_total"),
            y=wr.SummaryMetric("answer_accuracy"),
            log_x=True,
        ),
        wr.ParallelCoordinatesPlot(
            title="which cells solve it",
            columns=[wr.ParallelCoordinatesPlotColumn(metric=name) for name in columns],
        ),
    ]


def curve_panels() -> list[Any]:
    """Return the learning curves, against our own step."""
    from wandb_workspaces.reports import v2 as wr

    return [wr.LinePlot(title=name, x="step", y=[name]) for name in CURVES]


def figure_panels(keys: Sequence[str]) -> list[Any]:
    """Return the pictures and the table of the runs of job type ``figures``."""
    from wandb_workspaces.reports import v2 as wr

    return [wr.MediaBrowser(title="figures", media_keys=list(keys))]


def figure_keys(experiment: Experiment, results_dir: str | Path) -> list[str]:
    """Return the names under which the mirror logs the experiment's pictures and its table.

    A figure may draw several, a panel or a task each: what is drawn says which.
    """
    folder = Path(results_dir) / experiment.name / "figures"
    drawn = sorted(path.stem for path in folder.glob("*.png"))
    if not drawn:
        told = f"python -m plots experiment={experiment.name} draws them; call this again after it"
        print(f"note: {folder}: no figures yet; {told}", file=sys.stderr)
    return [*(drawn or experiment.figures), "results"]


def main(words: Sequence[str] | None = None) -> None:
    """Build both, save them to W&B, print their addresses."""
    defaults = {"experiment": "", "entity": "", "project": "cotcost", "results_dir": "results"}
    values = cli.key_values(sys.argv[1:] if words is None else words, defaults, USAGE)
    if not all(values.values()):
        raise UserError(USAGE)
    experiment = load_experiment(values.pop("experiment"))
    keys = figure_keys(experiment, values.pop("results_dir"))
    try:
        pages = [build(experiment, keys, **values) for build in (build_workspace, build_report)]
    except ModuleNotFoundError:
        raise UserError("wandb-workspaces is missing; pip install wandb-workspaces") from None
    for page in pages:
        try:
            page.save()
        except Exception as error:
            raise RunError(f"W&B: {' '.join(str(error).split())[:300]}") from None
        print(page.url)


if __name__ == "__main__":
    cli.main(main)
