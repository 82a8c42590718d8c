"""A GGUF model with its quantised weights in another form."""

from __future__ import annotations

import os
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any


def requantize(source: Path, target: Path) -> None:
    """Write ``source`` to ``target`` with every quantised tensor as Q8_0. The target appears whole or not at all.

    Raises:
        OSError: the target cannot be written.
    """
    import gguf
    from gguf import GGMLQuantizationType as Kind
    from gguf import GGUFReader, GGUFValueType, GGUFWriter

    reader: Any = GGUFReader(source)
    handle, name = tempfile.mkstemp(dir=target.parent, suffix=".part")
    os.close(handle)
    part = Path(name)
    try:
        with closing(GGUFWriter(part, reader.fields["general.architecture"].contents())) as opened:
            writer: Any = opened
            for field in reader.fields.values():
                if field.name == "general.architecture" or field.name.startswith("GGUF."):
                    continue  # the writer adds them
                kind = field.types[0]
                item = field.types[-1] if kind == GGUFValueType.ARRAY else None
                value = gguf.LlamaFileType.MOSTLY_Q8_0.value if field.name == "general.file_type" else field.contents()
                writer.add_key_value(field.name, value, kind, sub_type=item)
            for tensor in reader.tensors:
                if tensor.tensor_type in {Kind.F32, Kind.F16, Kind.Q8_0}:
                    writer.add_tensor(
                        tensor.name, tensor.data, raw_dtype=None if tensor.tensor_type != Kind.Q8_0 else Kind.Q8_0
                    )
                else:
                    weights = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
                    writer.add_tensor(tensor.name, gguf.quants.quantize(weights, Kind.Q8_0), raw_dtype=Kind.Q8_0)
            writer.write_header_to_file()
            writer.write_kv_data_to_file()
            writer.write_tensors_to_file()
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)
