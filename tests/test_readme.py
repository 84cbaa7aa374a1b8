"""Pages are short, and their links, paths, keys and commands exist."""

import re

import pytest
import yaml
from processes import ROOT

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
GROUPS = {path.parent.name for path in (ROOT / "conf").glob("*/*.yaml")}


def test_pages_are_short():
    words = {page.name: len(page.read_text(encoding="utf-8").split()) for page in PAGES}
    assert words.pop("README.md") <= 900 and words.pop("CONTRIBUTING.md") <= 700
    assert sum(words.values()) <= 10_000


def anchors_of(page):
    """Anchors that GitHub generates for a page's headings."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.M)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_and_paths_exist(page):
    text = page.read_text(encoding="utf-8")
    links = re.findall(r"\]\((?!http)([^)]+)\)", text)
    for path, _, anchor in (link.partition("#") for link in links):
        target = page.parent / path if path else page
        assert target.exists(), path
        assert not anchor or anchor in anchors_of(target), f"{path}#{anchor}"
    paths = re.findall(r"`([\w/]+/[\w/.]+\.(?:py|yaml|json))`", text)
    assert [path for path in paths if not (ROOT / path).exists() and "NAME" not in path] == []


def keys_of(script):
    """Top-level keys of a script's configuration and machine settings, and the config groups."""
    files = [ROOT / "conf" / name for name in (f"{script}.yaml", "machine/default.yaml")]
    own = [yaml.safe_load(path.read_text()) for path in files]
    return GROUPS.union({"hydra", "hydra/launcher"}, *own)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_use_existing_keys_and_choices(page):
    text = page.read_text(encoding="utf-8")
    found = re.findall(r"python (?:\S+/)?(train|sweep|evaluate)\.py ([^`\n#|]*)", text)
    assert len(found) == len(re.findall(r"python \S+\.py\b", text))
    for script, rest in found:
        for word in rest.split():
            key, equals, value = word.strip("'\"").lstrip("+").partition("=")
            if not equals or key.startswith("--"):
                continue
            assert key.partition(".")[0] in keys_of(script), word
            known = {path.stem for path in (ROOT / "conf" / key).glob("*.yaml")}
            assert not known or set(value.split(",")) <= known | {"mean", "mine", "parity"}, word
    for name in re.findall(r"python -m (\w+)", text):
        assert name in ("pytest", "venv") or (ROOT / name / "__main__.py").exists(), name
    for name in re.findall(r"python -m benchmarks ([a-z]+)", text):
        assert (ROOT / f"benchmarks/{name}.py").exists(), name
