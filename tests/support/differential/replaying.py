"""A case from its beginning to its end."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager

from tests.support.differential.cases import Case, Disagree, Do
from tests.support.differential.grounds import Folder, Ground
from tests.support.differential.pair import Pair


def replay(
    case: Case, seconds: float = float("inf"), ground: Ground | None = None, looks: float = 1.0
) -> int:
    """Run a case against the model.  Returns how many steps it did; ``Disagree`` says where it failed.

    ``ground``: an empty one, where its table is to be; None: in a folder.  ``looks``: behind which share of
    the steps more is looked at than all rows as they are now; at the end everything is.
    """
    ground = ground or Folder()
    before = os.environ.pop("KUDU_CORE_CHECK", None)
    if case.check:
        os.environ["KUDU_CORE_CHECK"] = "1"
    until, done = time.monotonic() + seconds, 0
    try:
        with Pair(case, ground) as pair:
            for number, step in enumerate(case.steps):
                if time.monotonic() > until:
                    break
                with _telling(f"step {number}, {type(step).__name__}"):
                    pair.do(step)
                    rng = random.Random(step.look)
                    if looks < 1.0 and random.Random(f"looks-{step.look}").random() >= looks:
                        pair.glance(rng)
                    else:
                        pair.look(rng)
                done += 1
            with _telling("at the end"):
                pair.do(Do("reopen"))
                pair.look(random.Random(0), thorough=True)
    finally:
        os.environ.pop("KUDU_CORE_CHECK", None)
        if before is not None:
            os.environ["KUDU_CORE_CHECK"] = before
        ground.end()
    return done


@contextmanager
def _telling(where: str) -> Iterator[None]:
    try:
        yield
    except Disagree as error:
        raise Disagree(f"{where}: {error}") from error
    except Exception as error:
        raise Disagree(f"{where}: {type(error).__name__}: {error}") from error
