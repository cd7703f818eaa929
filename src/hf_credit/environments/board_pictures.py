"""Pictures of Sudokus for models that see, drawn without a font: white digits on black cells between grey lines."""

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
def sudoku(cells: tuple[int | frozenset[int], ...], box: tuple[int, int]) -> Image:
    """The picture of a Sudoku, `CELL` pixels a cell; boxes have brighter lines.

    Args:
        cells: row after row, the digit of a cell, or the digits that an empty cell may have. They are marks without
            shape, in the order of a box: that of 1 in its upper left corner.
        box: the height and width of a box in cells.
    """
    size = box[0] * box[1]
    pixels = np.zeros((size, CELL, size, CELL), np.uint8)
    pixels[:, 0] = pixels[:, :, :, 0] = 64
    pixels[:: box[0], 0] = pixels[:, :, :: box[1], 0] = 128
    for place, cell in enumerate(cells):
        inside = pixels[place // size, :, place % size]
        if isinstance(cell, int):
            lines = str(_BITMAPS[cell - 1])
            inside[2:7, 3:6] = [[255 * (int(line) >> shift & 1) for shift in (2, 1, 0)] for line in lines]
        else:
            for digit in cell:
                row, column = divmod(digit - 1, box[1])
                inside[1 + 2 * row : 3 + 2 * row, 1 + 2 * column : 3 + 2 * column] = 255
    image = needed("images need", "PIL.Image", "vision").fromarray(pixels.reshape(size * CELL, size * CELL))
    return Image.of(image)
