"""Pictures of boards for models that see, drawn without a font: white digits on black cells between grey lines."""

from __future__ import annotations

import functools

import numpy as np

from hf_credit.content import Image
from hf_credit.optional_packages import needed

CELL = 8
"""The width and height of a cell in pixels, of which the first row and column are lines."""

# Five rows of three pixels each, a row as an octal digit.
_BITMAPS = (26227, 61247, 61216, 55711, 74616, 34757, 71222, 75757, 75716)  # of 1 to 9


@functools.lru_cache(maxsize=16384)
def digits(rows: tuple[str, ...], box: tuple[int, int]) -> Image:
    """The picture of a board, `CELL` pixels a cell.

    Args:
        rows: the digits of each row, `.` for an empty cell.
        box: the height and width of a box in cells; boxes have brighter lines.
    """
    height, width = len(rows), len(rows[0])
    pixels = np.zeros((height, CELL, width, CELL), np.uint8)
    pixels[:, 0] = pixels[:, :, :, 0] = 64
    pixels[:: box[0], 0] = pixels[:, :, :: box[1], 0] = 128
    for row, of_row in enumerate(rows):
        for column, digit in enumerate(of_row):
            if digit != ".":
                lit = [[int(line) >> shift & 1 for shift in (2, 1, 0)] for line in str(_BITMAPS[int(digit) - 1])]
                pixels[row, 2:7, column, 3:6] = 255 * np.array(lit)
    image = needed("images need", "PIL.Image", "vision").fromarray(pixels.reshape(height * CELL, width * CELL))
    return Image.of(image)
