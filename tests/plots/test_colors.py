"""A figure's own colours survive the palette of its PNG."""

import numpy as np
from PIL import Image

from plots import style


def test_a_thin_line_keeps_its_colour_in_a_picture_of_many(tmp_path):
    figure = style.new_figure(3, 2)
    axes = figure.add_axes((0.1, 0.1, 0.8, 0.8))
    noise = np.random.default_rng(0).random((150, 200))
    axes.pcolormesh(noise, cmap=style.HEAT)
    axes.plot([20, 180], [75, 75], color="#ff2f4f", linewidth=0.8)
    _, path = style.save(figure, tmp_path, "thin")
    with Image.open(path) as picture:
        colors = {color for _, color in picture.convert("RGB").getcolors(256)}
    assert (0xFF, 0x2F, 0x4F) in colors


def test_only_opaque_colours_and_no_more_than_asked_are_kept():
    figure = style.new_figure(2, 2)
    axes = figure.add_axes((0.1, 0.1, 0.8, 0.8))
    for level in range(40):
        axes.plot([0, 1], [0, level], color=(level / 40, 0, 0))
    axes.plot([0, 1], [0, 1], color=(0, 1, 0, 0.5))
    kept = style.own_colors(figure)
    assert (0, 255, 0) not in kept and (0, 0, 0) in kept and len(set(kept)) == len(kept)
    assert len(style.own_colors(figure, most=5)) == 5
