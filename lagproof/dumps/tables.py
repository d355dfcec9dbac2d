"""The tables of ``whatif``: each objective against the baseline, on all tokens, by sign and by age."""

from __future__ import annotations

from lagproof.data.slices import Sign
from lagproof.data.table import NOTHING, Column, Table, TableCell, TableRow
from lagproof.dumps.whatif import WhatIf
from lagproof.dumps.words import percent
from lagproof.metrics.slices import wider

NAME = Column("objective", align="left", wrap=True)
PARTS = ("kept", "removed", "added")


def overall(found: WhatIf) -> Table:
    """All tokens."""
    columns = [
        NAME,
        Column("differs"),
        *map(Column, PARTS),
        Column("cosine", format=".3f"),
        Column("up"),
        Column("down"),
        Column("advantage", align="left", detail=True),
        Column("reduction", align="left", detail=True),
    ]
    rows: list[TableRow] = []
    for k, c in enumerate(found.comparisons):
        shares = c.mass[None].shares
        rows.append(
            TableRow(
                [
                    c.choice.label + (" (now)" if k == 0 else ""),
                    percent(c.differs),
                    *(percent(shares.get(name)) for name in PARTS),
                    c.cosine,
                    percent(c.stats.get("clipped_high")),
                    percent(c.stats.get("clipped_low")),
                    c.choice.advantage,
                    c.choice.reduction,
                ]
            )
        )
    caption = (
        "differs: tokens with another weight. kept, removed, added: gradient mass (the sum of |weight|), as shares of "
        f"that of {found.baseline}. cosine: of the two vectors of weights. up, down: tokens clipped above and below; "
        f"{NOTHING}: it has no such clip."
    )
    return Table(f"Against {found.baseline}", columns, [rows], caption)


def by_sign(found: WhatIf) -> Table | None:
    """Tokens with positive and with negative advantage; ``None`` where there are neither."""
    if not any(name in c.mass for c in found.comparisons for name in Sign):
        return None
    columns = [NAME, *(Column(f"{sign}{part}") for sign in ("A>0 ", "A<0 ") for part in PARTS)]
    rows: list[TableRow] = []
    for c in found.comparisons[1:]:
        sides = [c.mass[side].shares if side in c.mass else {} for side in Sign]
        rows.append(TableRow([c.choice.label, *(percent(shares.get(name)) for shares in sides for name in PARTS)]))
    return Table("By sign of the advantage", columns, [rows])


def removed_by_age(found: WhatIf, max_bands: int) -> Table | None:
    """What is taken away from tokens of each age; neighbouring ages share a column where there are many.

    Returns:
        ``None`` where all tokens are of one age, or nothing is compared.
    """
    ages = found.comparisons[0].ages
    if len(ages) < 2 or len(found.comparisons) < 2:
        return None
    columns = wider(ages, max_bands)
    rows: list[TableRow] = []
    for c in found.comparisons[1:]:
        shares = [c.together(names).shares.get("removed") for names in columns.values()]
        rows.append(TableRow([c.choice.label, *(TableCell(percent(x), share=x or 0.0) for x in shares)]))
    caption = (
        f"Share of the mass that {found.baseline} puts on tokens of these ages (updates between the version that "
        "sampled a token and the learner's) that an objective takes away."
    )
    return Table("Removed, by age", [NAME, *(Column(band.label) for band in columns)], [rows], caption)


def cosines(found: WhatIf) -> Table:
    """Which objectives pull the same way."""
    labels = [c.choice.label for c in found.comparisons]
    rows = [
        TableRow([label, *(TableCell(x, share=x or 0.0) for x in row)])
        for label, row in zip(labels, found.cosines, strict=True)
    ]
    columns = [Column("cosine", align="left", wrap=True), *(Column(label, format=".2f") for label in labels)]
    caption = (
        "Cosine of the vectors of weights of each two objectives, over all tokens and steps. 1: the same direction, "
        "whatever their sizes."
    )
    return Table("Which objectives pull the same way", columns, [rows], caption)
