"""What a scheduler remembers from plan to plan. Deciders read it; it changes only when a plan is noted."""

from __future__ import annotations

from dataclasses import dataclass, field

from tidegate.scheduling.plan import Plan


@dataclass(slots=True)
class Memory:
    """``overtakes`` and ``held_passes`` by request id, where not 0; plans with admissions; plans held in a row."""

    overtakes: dict[str, int] = field(default_factory=dict)
    held_passes: dict[str, int] = field(default_factory=dict)
    admitting_plans: int = 0
    batch_waits: int = 0

    def note(self, plan: Plan) -> None:
        """Store what a plan counted."""
        self.batch_waits = plan.batch_waits
        self.admitting_plans += bool(plan.admissions)
        for entry in plan.admissions:
            for request_id in entry.overtaken:
                self.overtakes[request_id] = self.overtakes.get(request_id, 0) + 1
        for request_id in plan.held:
            self.held_passes[request_id] = self.held_passes.get(request_id, 0) + 1

    def forget(self, request_id: str) -> int:
        """Drop what is known of a request that ended, and return how often it was overtaken."""
        self.held_passes.pop(request_id, None)
        return self.overtakes.pop(request_id, 0)
