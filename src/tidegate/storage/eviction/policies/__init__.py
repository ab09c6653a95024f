"""One module per eviction policy; its name is the setting's value, its ``make(valid, pages)`` makes one.

Nothing else has to change for another policy: what lies here is found by its name.
"""

__all__: list[str] = []
