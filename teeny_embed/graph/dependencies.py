"""Which steps must come after which: by data, by versions of variables, and by what is checked first."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from teeny_embed.graph.step import Buffer, Schedule, Step


class Dependencies:
    """Steps under change: who produces and who uses each buffer, and which orders hold."""

    def __init__(self, schedule: Schedule) -> None:
        self.rank = {step: float(i) for i, step in enumerate(schedule.steps)}
        self.producer: dict[Buffer, Step] = {}
        self.users: dict[Buffer, dict[Step, None]] = {}
        self.variable_of = {value: variable for variable, value in schedule.assigns}
        self.value_of = dict(schedule.assigns)
        self.checked = {c.buffer for c in schedule.checks if c.kind == "finite"}
        self.kept = {*schedule.outputs, *self.variable_of, *self.checked}
        self._successors: dict[Step, tuple[Step, ...]] = {}
        for step in schedule.steps:
            self._link(step)

    def _link(self, step: Step) -> None:
        for buffer in step.buffers_written():
            self.producer[buffer] = step
        for buffer in step.buffers_read():
            self.users.setdefault(buffer, {})[step] = None

    def replace(self, old: tuple[Step, ...], new: Step) -> None:
        """One step instead of several; it takes the place of the last."""
        self.rank[new] = max(self.rank[step] for step in old)
        for step in old:
            self.remove(step)
        self._link(new)
        self._forget_orders(new)

    def remove(self, step: Step) -> None:
        """`step` is no more."""
        self._forget_orders(step)
        del self.rank[step]
        for buffer in step.buffers_read():
            self.users[buffer].pop(step, None)
        for buffer in step.buffers_written():
            if self.producer.get(buffer) is step:
                del self.producer[buffer]

    def _forget_orders(self, step: Step) -> None:
        """What was known of steps that `step` must come after."""
        earlier = [self.producer.get(b) for b in step.buffers_read()]
        versions = [self.variable_of[b] for b in step.buffers_written() if b in self.variable_of]
        earlier += [reader for variable in versions for reader in self.users.get(variable, ())]
        earlier += [self.producer.get(b) for b in self.checked] if versions else []
        for known in (step, *(s for s in earlier if s is not None)):
            self._successors.pop(known, None)

    def steps(self) -> list[Step]:
        return sorted(self.rank, key=self.rank.__getitem__)

    def writers(self) -> list[Step]:
        """Steps that make the next version of a variable."""
        return list(dict.fromkeys(self.producer[v] for v in self.variable_of if v in self.producer))

    def successors(self, step: Step) -> tuple[Step, ...]:
        """Steps that must come after `step`."""
        if step not in self._successors:
            self._successors[step] = tuple(dict.fromkeys(self._found_successors(step)))
        return self._successors[step]

    def _found_successors(self, step: Step) -> Iterator[Step]:
        for buffer in step.buffers_written():
            yield from self.users.get(buffer, ())
            if buffer in self.checked:
                yield from (w for w in self.writers() if w is not step)
        for buffer in step.buffers_read():
            writer = self.producer.get(self.value_of[buffer]) if buffer in self.value_of else None
            if writer is not None and writer is not step:
                yield writer

    def path_around(self, first: Step, last: Step) -> bool:
        """Whether `last` must come after some step that must come after `first`."""
        seen = {first}
        todo = [n for n in self.successors(first) if n is not last]
        while todo:
            step = todo.pop()
            if step is last:
                return True
            if step not in seen:
                seen.add(step)
                todo += self.successors(step)
        return False

    def precedes(self, first: Step, last: Step) -> bool:
        """Whether `last` must come after `first`."""
        return last in self.successors(first) or self.path_around(first, last)

    def connected(self, a: Step, b: Step) -> bool:
        """Whether one must come after the other."""
        return self.precedes(a, b) or self.precedes(b, a)

    def ordered(self, cost: Callable[[Step], float] = lambda step: 0.0) -> Iterator[Step]:
        """All steps in an order that holds: of those that may run the cheapest next, ties as given."""
        waiting = dict.fromkeys(self.rank, 0)
        for step in self.rank:
            for following in self.successors(step):
                waiting[following] += 1
        ready = [step for step, n in waiting.items() if n == 0]
        done = 0
        while ready:
            step = min(ready, key=lambda candidate: (cost(candidate), self.rank[candidate]))
            ready.remove(step)
            done += 1
            yield step
            for following in self.successors(step):
                waiting[following] -= 1
                if waiting[following] == 0:
                    ready.append(following)
        assert done == len(self.rank), "steps depend on each other in a circle"
