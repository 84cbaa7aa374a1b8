"""What stands beside a stored data set for people and other programs: card, vocabulary, splits.

With these files ``datasets.load_from_disk`` opens the folder as a `DatasetDict`, and
``datasets.load_dataset`` a published copy of it.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping
from typing import Any

import yaml

from tasks.task import SPLITS, Task

_CARD = """\
# {title}

{about}

Made by [cotcost].{distinct}

| split | sequences |
|---|---|
{splits}

| column | what it is |
|---|---|
| `tokens` | {width} ids, `{dtype}`: prompt, {chain}answer, `<eos>` (id 1), then padding (id 0) |
| `lengths` | tokens without padding, `<eos>` counted |
| `prompt_lengths` | tokens of the prompt, its closing marker included |
{labels}
`vocabulary.json` lists the tokens by their ids:

```python
import datasets, json
data = {opened}
words = json.load(open({vocabulary}))
row = data["test"][0]
print(*(words[i] for i in row["tokens"][: row["lengths"]]))
```

Task and parameters: `{name}`, `{parameters}`; seed {seed}. SHA-256 of the content: `{fingerprint}`.

[cotcost]: the tasks follow Yang et al. (ICML 2024, arXiv 2402.13934) and Feng et al. (NeurIPS 2023,
arXiv 2305.15408).
"""

_LABELS = "| `labels` | what to say after the tokens before each place; padding elsewhere |\n"
_DISTINCT = " Every prompt occurs once, in one split."


def beside(task: Task, meta: Mapping[str, Any]) -> dict[str, str]:
    """Return the files of a stored folder, name and text; ``meta`` is its ``meta.json``.

    ``dataset_dict.json`` comes last: where it is, the others are.
    """
    return {
        "vocabulary.json": vocabulary(task),
        "README.md": card(task, meta),
        "dataset_dict.json": json.dumps({"splits": list(SPLITS)}),
    }


def vocabulary(task: Task) -> str:
    """Return the tokens in the order of their ids, as JSON."""
    return json.dumps(task.vocabulary.tokens, ensure_ascii=False, indent=0) + "\n"


def card(task: Task, meta: Mapping[str, Any], repo: str | None = None) -> str:
    """Return the data card, in Markdown with the Hub's front matter.

    ``repo`` is where the set is published; None for the folder of the store.
    """
    files = "data/{}.parquet" if repo else "{}/*.arrow"
    held = [split for split in SPLITS if meta["sequences"][split]]
    folder = "the folder of this file"
    fetched = f'huggingface_hub.hf_hub_download("{repo}", "vocabulary.json", repo_type="dataset")'
    front = {
        "pretty_name": f"{task.name}, size {task.size}, {task.format}",
        "license": "mit",
        "tags": ["chain-of-thought", "synthetic", "cotcost"],
        "configs": [
            {
                "config_name": "default",
                "data_files": [{"split": split, "path": files.format(split)} for split in held],
            }
        ],
    }
    text = _CARD.format(
        title=front["pretty_name"],
        about=_about(task),
        distinct="" if meta["spec"]["file"] or meta["spec"]["train_file"] else _DISTINCT,
        splits="\n".join(f"| {split} | {meta['sequences'][split]:,} |" for split in SPLITS),
        width=task.max_len + 1,
        dtype=task.vocabulary.dtype,
        labels=_LABELS if task.format == "tagged" else "",
        chain="chain, " if task.format == "cot" else "",
        opened=f'datasets.load_dataset("{repo}")'
        if repo
        else f'datasets.load_from_disk("{folder}")',
        vocabulary=fetched if repo else f'"{folder}/vocabulary.json"',
        name=f"{type(task).__module__}.{type(task).__qualname__}",
        parameters=json.dumps(task.parameters, default=str),
        seed=meta["spec"]["seed"],
        fingerprint=meta["fingerprint"],
    )
    return f"---\n{yaml.safe_dump(front, sort_keys=False)}---\n\n{text}"


def _about(task: Task) -> str:
    """Return what the sources say first: what the task is, and what its sequences hold."""
    told = (inspect.getdoc(inspect.getmodule(type(task))), inspect.getdoc(type(task)))
    return "\n\n".join(text.split("\n\n")[0] for text in told if text)
