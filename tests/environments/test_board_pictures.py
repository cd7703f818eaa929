"""Pictures of Sudokus, drawn by the library."""

import numpy as np

from hf_credit.environments.board_pictures import CELL, sudoku


def cells_of(cells, box):
    """The pixels of each cell without its lines."""
    size = box[0] * box[1]
    pixels = np.asarray(sudoku(tuple(cells), box).pil().convert("L"))
    assert pixels.shape == (size * CELL, size * CELL)
    return (
        pixels.reshape(size, CELL, size, CELL).transpose(0, 2, 1, 3)[:, :, 1:, 1:].reshape(size * size, CELL - 1, -1)
    )


def as_text(pixels):
    return ["".join(".#"[lit] for lit in line) for line in (pixels == 255).astype(int)]


def test_a_digit_looks_the_same_in_every_cell_and_like_no_other():
    cells = cells_of([*range(1, 10)] * 9, (3, 3))
    assert len({cell.tobytes() for cell in cells}) == 9
    assert all(np.array_equal(cells[:9], cells[9 * row : 9 * row + 9]) for row in range(9))


def test_digits_can_be_read():
    assert as_text(cells_of([1, 4, 1, 4] * 4, (2, 2))[1])[1:6] == [
        "..#.#..",
        "..#.#..",
        "..###..",
        "....#..",
        "....#..",
    ]


def test_an_empty_cell_has_a_mark_where_each_candidate_stands_in_a_box():
    left = [frozenset(), frozenset({1, 6, 8}), frozenset(range(1, 10))]
    nothing, some, all_nine = cells_of([*left, *[1] * 78], (3, 3))[:3]
    assert not nothing.any()
    assert as_text(some) == ["##.....", "##.....", "....##.", "....##.", "..##...", "..##...", "......."]
    assert as_text(all_nine) == ["######."] * 6 + ["......."]


def test_boxes_have_brighter_lines():
    pixels = np.asarray(sudoku((frozenset(),) * 16, (2, 2)).pil().convert("L"))
    assert [pixels[CELL * row, 1] for row in range(4)] == [128, 64, 128, 64]
    assert [pixels[1, CELL * column] for column in range(4)] == [128, 64, 128, 64]
