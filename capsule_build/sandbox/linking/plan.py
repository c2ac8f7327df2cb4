"""Which instances of a component become one, and what of the rest depends on them.

Those that share a memory become one: the instance that has it, and all that are made of exports of these.
What needs a function that the host is to call with the memory at hand can't: it is made after them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .components import Alias, Canonical, Component, CoreItem, Gathered, Instantiated
from .errors import LinkError
from .modules import Module, read_module

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    Place = CoreItem | int
    """An item, or an instance."""


@dataclass
class Plan:
    """What becomes one.

    Attributes:
        component: The component.
        modules: Its modules, taken apart, by their numbers.
        linked: The instances that become one, in their order.
    """

    component: Component
    modules: dict[int, Module]
    linked: list[int]
    _known: dict[Place, tuple[bool, bool]] = field(default_factory=dict)

    def of_linked(self, instance: int) -> tuple[Module, Instantiated]:
        """Return the module of an instance that becomes part of the one, and what it is made of."""
        made = self.component.instances[instance]
        if not isinstance(made, Instantiated):
            raise LinkError("an instance of no module")
        return self.modules[made.module], made

    def comes_after(self, place: Place) -> bool:
        """Whether an item or instance needs the linked ones."""
        return any(_ways(self.component, self.linked, place, self._known))

    def needed_by(self, place: Place) -> Iterator[Place]:
        """Yield what an item or instance is made of, but for what the linked ones are made of."""
        if place not in self.linked:
            yield from _made_of(self.component, place)


def make_plan(component: Component) -> Plan:
    """Find what becomes one.

    Raises:
        LinkError: There isn't one instance with a memory, or a module has two instances.
    """
    modules = {
        made.module: read_module(component.modules[made.module])
        for made in component.instances
        if isinstance(made, Instantiated)
    }
    instantiated = [
        (number, made) for number, made in enumerate(component.instances) if isinstance(made, Instantiated)
    ]
    linked = {number for number, made in instantiated if modules[made.module].memories}
    if len(linked) != 1:
        raise LinkError(f"{len(linked)} instances with a memory")
    grows = True
    while grows:
        known: dict[Place, tuple[bool, bool]] = {}
        more = {
            number
            for number, _ in instantiated
            if number not in linked and _ways(component, linked, number, known) == (True, False)
        }
        linked |= more
        grows = bool(more)
    numbers = [made.module for number, made in instantiated if number in linked]
    if len(set(numbers)) < len(numbers):
        raise LinkError("two instances of one module")
    return Plan(component, modules, sorted(linked))


def _made_of(component: Component, place: Place) -> Iterator[Place]:
    if isinstance(place, CoreItem):
        definition = component.what_is(place)
        if isinstance(definition, Alias):
            yield definition.instance
        else:
            yield from definition.items()
        return
    made = component.instances[place]
    if isinstance(made, Gathered):
        yield from made.exports.values()
    else:
        yield from made.arguments.values()


def _ways(
    component: Component, linked: Collection[int], place: Place, known: dict[Place, tuple[bool, bool]]
) -> tuple[bool, bool]:
    """Return whether something needs the linked instances, and whether it does by way of the host."""
    if place in linked:
        return True, False
    if place not in known:
        # Parts refer to earlier ones only; one that doesn't must not lead in circles.
        known[place] = False, False
        found = [_ways(component, linked, other, known) for other in _made_of(component, place)]
        direct, by_host = any(one for one, _ in found), any(other for _, other in found)
        if isinstance(place, CoreItem) and isinstance(component.what_is(place), Canonical):
            direct, by_host = False, direct or by_host
        known[place] = direct, by_host
    return known[place]
