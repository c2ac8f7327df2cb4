"""What lies beside an exported task bundle, as beside any bundle: digest, SBOM, provenance, signatures."""

from __future__ import annotations

import contextlib
import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

from ..pins import load_pins
from ..release.outputs import Outputs, digest_line, publish, remove_stale
from ..release.statements import FILE_NAME
from ..release.task_contract import digests, facts_of
from ..release.task_provenance import make_task_provenance
from ..runtime.errors import UsageError
from ..sbom import TaskBundle, make_task_sbom, used_distributions, used_npm_packages
from .artifact import read_artifact
from .languages import JAVASCRIPT
from .modules import PACKAGES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ..release.signer import Signer, SigningOptions
    from ..sbom.packages import Package
    from .packing import Collected


def export_set(
    path: Path,
    data: bytes,
    collected: Collected,
    signing: SigningOptions | None,
    say: Callable[[str], None],
) -> tuple[tuple[Path, ...], str | None]:
    """Write a task bundle and what lies beside it, and sign it.

    Where nothing changes by that, signatures that are there stay; else they go with what they were of.

    Args:
        path: The bundle.
        data: Its bytes.
        collected: What was packed.
        signing: Who signs; `None`: nobody.
        say: Hears what a person should know.

    Returns:
        What lies beside it, and who signed.

    Raises:
        UsageError: Its name can't be that of a bundle.
        CapsuleError: It can't be signed.
    """
    if not FILE_NAME.fullmatch(path.name):
        raise UsageError(
            f"{path.name!a} can't be the name of a bundle: it has letters, digits and ._+- only.",
            hint="Rename the source. Without --export any name will do.",
        )
    outputs = Outputs(path)
    remove_stale(path.parent)
    files = {outputs.bundle: data, **_documents(outputs, data, collected)}
    with _signer(signing, say) as signer:
        changed = any(not each.is_file() or each.read_bytes() != held for each, held in files.items())
        if changed:
            publish(files, removed=outputs.signatures)
        if signer is not None:
            from ..release.signing import sign_bundle

            publish(sign_bundle(path, signer))
        beside = tuple(each for each in outputs.released[1:] if each.is_file())
        return beside, None if signer is None else signer.identity


def _documents(outputs: Outputs, data: bytes, collected: Collected) -> dict[Path, bytes]:
    name, sha256 = outputs.bundle.name, hashlib.sha256(data).hexdigest()
    artifact = read_artifact(data, str(outputs.bundle))
    inputs = digests(collected.inputs)
    bundle = TaskBundle(
        filename=name,
        sha256=sha256,
        size=len(data),
        version=artifact.version,
        entry=artifact.file.entry,
        policy_sha256=artifact.policy_sha256,
        language=artifact.guest.language,
        guest_sha256=artifact.guest.sha256,
    )
    provenance = make_task_provenance(
        name,
        sha256,
        file=artifact.file.path,
        found=facts_of(artifact),
        inputs=inputs,
        tools=_tools(collected.language),
    )
    return {
        outputs.digest: digest_line(sha256, name),
        outputs.sbom: make_task_sbom(bundle, inputs, _packages(collected)),
        outputs.provenance: provenance,
    }


def _packages(collected: Collected) -> Iterator[tuple[Package, list[str]]]:
    """Yield the packages that files come from, with the names that the inputs have for those files."""
    if collected.language == JAVASCRIPT:
        for package in used_npm_packages(collected.folders[0], collected.inputs):
            yield package, list(package.owns)
    else:
        for package in used_distributions(collected.folders, collected.installed):
            yield package, [PACKAGES + name for name in package.owns]


def _tools(language: str) -> dict[str, str]:
    """Return the versions of what made the file beside this project."""
    if language != JAVASCRIPT:
        return {}
    from .javascript import guest, making

    pins = load_pins(Path(guest.sources(), guest.PINS)).pins
    return {making.BUNDLER: next(pin.version for pin in pins if pin.component == making.BUNDLER)}


@contextlib.contextmanager
def _signer(signing: SigningOptions | None, say: Callable[[str], None]) -> Iterator[Signer | None]:
    if signing is None:
        yield None
        return
    # Loads sigstore, which takes longer than all else here.
    from ..release.signing import open_signer

    with open_signer(signing, say=say) as signer:
        yield signer
