"""What a path in a bundle may look like: members' names, link targets, and the paths in a manifest."""

from __future__ import annotations

import unicodedata
from typing import Final

from .limits import MAX_COMPONENT_BYTES, MAX_LEVELS, MAX_NAME_BYTES
from .rules import BundleError, Rule

_UNSEEN: Final = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Unicode categories that don't show: control, formatting (bidirectional overrides), surrogates, breaks."""


def check_name(name: str) -> None:
    """Check that a name is a plain relative path.

    Raises:
        BundleError: It isn't; the error names the rule and the name.
    """
    if name.startswith("/"):
        raise BundleError(Rule.RELATIVE_NAME, "the name is absolute.", member=name)
    _check_letters(name, name, "the name")
    components = name.split("/")
    for component in components:
        if component in ("", ".", ".."):
            raise BundleError(
                Rule.PLAIN_NAME, f"the name has a component that reads '{component}'.", member=name
            )
        _check_component(component, name)
    if len(components) > MAX_LEVELS:
        raise BundleError(
            Rule.LEVELS, f"the name is {len(components)} levels deep, of {MAX_LEVELS} allowed.", member=name
        )


def check_target(member: str, target: str) -> None:
    """Check that a symlink's target is a relative path, which may use `.` and `..`.

    Whether it stays inside the bundle depends on the other symlinks: `tree.Tree` checks that.

    Raises:
        BundleError: It isn't; the error names the rule and the symlink.
    """
    if not target:
        raise BundleError(Rule.LINK_TARGET, "the symlink's target is empty.", member=member)
    if target.startswith("/"):
        raise BundleError(Rule.LINK_TARGET, f"the symlink's target '{target}' is absolute.", member=member)
    _check_letters(target, member, "the symlink's target")
    for component in target.split("/"):
        if not component:
            raise BundleError(
                Rule.LINK_TARGET, f"the symlink's target '{target}' has an empty component.", member=member
            )
        _check_component(component, member)


def fold(name: str) -> str:
    """Return the form that two names share when a file system that ignores case takes them for one."""
    return name.lower() if name.isascii() else unicodedata.normalize("NFC", name.casefold())


def _check_letters(text: str, member: str, what: str) -> None:
    if len(text.encode("utf-8", "surrogatepass")) > MAX_NAME_BYTES:
        raise BundleError(Rule.NAME_LENGTH, f"{what} is longer than {MAX_NAME_BYTES} bytes.", member=member)
    if "\\" in text:
        raise BundleError(Rule.NAME_CHARACTERS, f"{what} holds a backslash.", member=member)
    if text.isascii() and text.isprintable():
        return
    for letter in text:
        if unicodedata.category(letter) in _UNSEEN:
            raise BundleError(
                Rule.NAME_CHARACTERS,
                f"{what} holds the control or formatting character U+{ord(letter):04X}.",
                member=member,
            )


def _check_component(component: str, member: str) -> None:
    if len(component.encode("utf-8")) > MAX_COMPONENT_BYTES:
        raise BundleError(
            Rule.NAME_LENGTH, f"a component is longer than {MAX_COMPONENT_BYTES} bytes.", member=member
        )
