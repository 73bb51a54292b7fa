"""The hundred quadratics, played by servers that are told moments."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import hundred
import numpy as np
from toy import KEY

from shoal.core.types import Cohort, Moment, message_for


class Quadratics(hundred.Quadratics):
    """See `hundred`."""

    def play(self, method: Any, rounds: int, seed: int = 0, cohort: int = 10) -> SimpleNamespace:
        """The model after each round from 0, and what was recorded."""
        key, (_, axes) = KEY.fold("play", seed), self.optima.shape
        state = method.init(SimpleNamespace(init=lambda _: self.weights(np.zeros(axes))), key)
        models, records = [], []
        for r in range(rounds):
            here = key.fold("round", r)
            chosen = here.fold("select").numpy().choice(hundred.CLIENTS, cohort, replace=False)
            members = Cohort(tuple(chosen.tolist()), {}, hundred.CLIENTS)
            moment = Moment(r, 0, True, here.fold("server"))
            message = method.dispatch(None, state, members, moment)
            acc = method.begin(state, members)
            for position, client in enumerate(members.ids):
                mine = message_for(message, position)
                acc = method.fold(acc, client, mine, self.reply(client, mine))
            state, metrics = method.finish(None, state, acc, moment)
            models.append(self.values(state.model))
            records.append(metrics)
        return SimpleNamespace(models=np.array(models), records=records, state=state)
