from __future__ import annotations

import pytest

np = pytest.importorskip("numpy")
gguf = pytest.importorskip("gguf", reason="the demo's engine (extra 'engine') is not installed")

from contextpilot_rag.demo.requantize import requantize  # noqa: E402


@pytest.fixture
def model(tmp_path):
    """A model file with one tensor of each kind that the packaged model has."""
    path = tmp_path / "model.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_uint32("llama.block_count", 1)
    writer.add_string("general.name", "tiny")
    writer.add_file_type(3)
    writer.add_array("tokenizer.ggml.tokens", ["a", "b"])
    weights = np.linspace(-1, 1, 4 * 64, dtype=np.float32).reshape(4, 64)
    for name, kind in (("packed", gguf.GGMLQuantizationType.Q4_1), ("eight", gguf.GGMLQuantizationType.Q8_0)):
        writer.add_tensor(name, gguf.quants.quantize(weights, kind), raw_dtype=kind)
    writer.add_tensor("plain", weights)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def values(tensor):
    return gguf.quants.dequantize(tensor.data, tensor.tensor_type).reshape(4, 64)


def test_every_weight_survives_to_within_rounding(model, tmp_path):
    target = tmp_path / "out.gguf"
    requantize(model, target)
    before = {tensor.name: tensor for tensor in gguf.GGUFReader(model).tensors}
    after = gguf.GGUFReader(target)
    kinds = {tensor.name: tensor.tensor_type.name for tensor in after.tensors}
    assert kinds == {"packed": "Q8_0", "eight": "Q8_0", "plain": "F32"}
    for tensor in after.tensors:
        assert np.abs(values(tensor) - values(before[tensor.name])).max() < 0.01
    assert after.fields["general.name"].contents() == "tiny"
    assert after.fields["tokenizer.ggml.tokens"].contents() == ["a", "b"]
    assert after.fields["general.file_type"].contents() == gguf.LlamaFileType.MOSTLY_Q8_0


def test_a_failure_leaves_nothing_behind(model, tmp_path, monkeypatch):
    folder = tmp_path / "target"
    folder.mkdir()

    def full(self):
        assert list(folder.iterdir()), "the part file is there by now"
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(gguf.GGUFWriter, "write_tensors_to_file", full)
    with pytest.raises(OSError, match="No space left"):
        requantize(model, folder / "out.gguf")
    assert list(folder.iterdir()) == []
