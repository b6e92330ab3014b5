"""Puts a bill of materials into the wheel, as PEP 770 has it: `.dist-info/sboms/callfuse.cdx.json`, in CycloneDX.

The wheel contains callfuse alone, so the bill names what it requires, with the versions that it allows. It says the
same for the same sources: no time, no random number.
"""

import json
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from packaging.requirements import Requirement


def bill_of_materials(core: Any, version: str) -> dict[str, Any]:
    """The bill of a version; `core` is the project's metadata as hatchling reads it."""
    own = f"pkg:pypi/{core.name}@{version}"
    optional = {name: True for names in core.optional_dependencies_complex.values() for name in names}
    required = dict.fromkeys(core.dependencies_complex, False)
    components: dict[str, dict[str, Any]] = {}
    for line, is_optional in {**optional, **required}.items():
        asked = Requirement(line)
        if asked.name == core.name:
            continue
        purl = f"pkg:pypi/{asked.name}"
        known = components.setdefault(
            asked.name,
            {"type": "library", "bom-ref": purl, "name": asked.name, "purl": purl, "scope": "optional"}
            | {"properties": []},
        )
        known["scope"] = known["scope"] if is_optional else "required"
        known["properties"].append({"name": "callfuse:requirement", "value": str(asked)})
    listed = [components[name] for name in sorted(components)]
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "lifecycles": [{"phase": "build"}],
            "component": {
                "type": "library",
                "bom-ref": own,
                "name": core.name,
                "version": version,
                "description": core.description,
                "licenses": [{"license": {"id": core.license_expression}}],
                "purl": own,
                "externalReferences": [{"type": "vcs", "url": core.urls["Source"]}],
            },
        },
        "components": listed,
        "dependencies": [
            {"ref": own, "dependsOn": [one["bom-ref"] for one in listed]},
            *({"ref": one["bom-ref"]} for one in listed),
        ],
        # What the required packages require in turn is theirs to say.
        "compositions": [{"aggregate": "incomplete", "dependencies": [own]}],
    }


class BillOfMaterials(BuildHookInterface[Any]):
    """The hook that hatchling calls for each wheel."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Write the bill to a temporary folder, from which it is packed."""
        if version == "editable":
            return
        self._folder = tempfile.TemporaryDirectory()
        file = Path(self._folder.name, f"{self.metadata.core.name}.cdx.json")
        bill = bill_of_materials(self.metadata.core, self.metadata.version)
        file.write_text(json.dumps(bill, indent=2) + "\n", encoding="utf-8")
        build_data["sbom_files"].append(str(file))

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove the folder."""
        if version != "editable":
            self._folder.cleanup()
