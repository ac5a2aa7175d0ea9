"""Export of a policy: a folder in the format of Hugging Face, which `load_pretrained` and other libraries read."""
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from llm.policy.checkpoint import FAMILIES, FIELDS, LLAMA3, names, read, safetensors
from llm.policy.lora import is_adapted
from llm.policy.peft import CONFIG, settings, write_adapters
from llm.policy.tokenizer import Tokenizer
from llm.policy.transformer import Transformer
from spinup.errors import UserError
from spinup.runs.files import disk_errors, write_json
from spinup.runs.folders import describe, writable
from spinup.runs.records import read_run

MARK = ".spinup"                        # in a folder that is being written
WRITER = "spinup llm export"            # in config.json of an export, so that it may be replaced later


def save_pretrained(folder: str | Path, model: Transformer, tokenizer: Tokenizer) -> None:
    """Write a folder that `load_pretrained` and transformers can read. It is written whole or not at all.

    An existing folder is replaced if this function wrote it and the new one has all of its files. Otherwise raise
    UserError. Also raise it for a policy that is not one transformer.
    """
    if not isinstance(model, Transformer):
        raise UserError("this policy consists of two models, and other libraries read only one; train a copy of it in "
                        "one model with: spinup llm reinforce --teacher DIR")
    library, config = safetensors(folder), config_of(model, tokenizer)

    def write(new: Path) -> None:
        tokenizer.save(new)
        write_json(new / "config.json", config)
        library.torch.save_file(names(model), new / "model.safetensors", metadata={"format": "pt"})

        # safetensors makes the file unreadable for other users.
        shutil.copymode(new / "config.json", new / "model.safetensors")

    write_whole(folder, write)


def save_adapters(folder: str | Path, model: Transformer, run: Path) -> str:
    """Write the adapters of the model of a run as a folder that PEFT can read, whole or not at all. Return the base
    model if it is no checkpoint of Hugging Face's, so that PEFT cannot find it, else "".

    Raise UserError for a model without adapters, and as `save_pretrained` does.
    """
    if not is_adapted(model):
        raise UserError(f"{describe(run)} has no adapters; leave out --adapters")
    base = settings(run)[0] if (run / CONFIG).is_file() else read_run(run)["config"]["model"]
    if (Path(base) / CONFIG).is_file():
        raise UserError(f"{describe(run)} trained adapters on {base}, which holds adapters too; leave out --adapters "
                        "to export the whole model")
    file = Path(base) / "config.json"
    found = file.is_file() and "model_type" in read(file)
    write_whole(folder, lambda new: write_adapters(new, model, str(Path(base).resolve()) if found else base))
    return "" if found else base


def write_whole(folder: str | Path, write: Callable[[Path], None]) -> None:
    """Create a folder with the files that `write` writes into it, or leave everything as it is.

    An existing folder is replaced if it is an export and the new one has all of its files. Otherwise raise UserError.
    """
    folder = Path(folder).resolve()
    if not folder.name or not writable(folder.parent):
        raise UserError(f"{folder} cannot be written to; give a new folder, such as models/mine")
    new, old = (folder.with_name(f".{folder.name}.{x}") for x in ("new", "old"))
    if folder.exists() and not replaceable(folder):
        what = "is not an empty folder" if folder.is_dir() else "is a file"
        raise UserError(f"{folder} {what}, and it would be lost; give the model a new folder")
    for left, ours in ((new, (new / MARK).exists()), (old, replaceable(old))):
        if left.exists() and not ours:
            raise UserError(f"{left} is in the way; move it, or give the model another folder")
    if old.exists() and not folder.exists():                              # a run was killed between the renames below
        old.rename(folder)
    for left in (new, old):
        shutil.rmtree(left, ignore_errors=True)
    new.mkdir(parents=True)
    (new / MARK).touch()
    try:
        with disk_errors(new):
            write(new)
        for file in (x for x in new.rglob("*") if x.is_file()):
            with open(file, "rb+") as written:
                os.fsync(written.fileno())
        (new / MARK).unlink()
        if folder.exists():
            if lost := {x.name for x in folder.iterdir()} - {x.name for x in new.iterdir()}:
                raise UserError(f"{folder} holds {min(lost)}, which would be lost; give the model a new folder")
            folder.rename(old)
        new.rename(folder)
    except BaseException:
        shutil.rmtree(new, ignore_errors=True)
        if old.exists() and not folder.exists():
            old.rename(folder)
        raise
    shutil.rmtree(old, ignore_errors=True)


def replaceable(folder: Path) -> bool:
    """Return whether a folder is empty, or an export of a whole model."""
    if not folder.is_dir():
        return False
    file = folder / "config.json"
    return read(file).get("written_by") == WRITER if file.is_file() else not any(folder.iterdir())


def config_of(model: Transformer, tokenizer: Tokenizer) -> dict[str, Any]:
    """Build config.json, the inverse of `shape_of`.

    It has the rotary settings under the names of all versions of transformers. A version that does not find its own
    name silently uses 10,000. Raise UserError for a shape that no family has.
    """
    shape = model.shape
    family = next((x for x, (_, *has) in FAMILIES.items() if has == [shape.qkv_bias, shape.qk_norm]), None)
    if family is None:
        raise UserError("no family of models has both qkv_bias and qk_norm; switch one of them off to save this model")
    others, scaling = sorted(tokenizer.ends - {tokenizer.end}), None
    if shape.rope_scaling is not None:
        scaling = {"rope_type": "llama3", **dict(zip(LLAMA3, shape.rope_scaling, strict=True))}
    return {"architectures": [family], "model_type": FAMILIES[family][0], "hidden_act": "silu",
            **{theirs: getattr(shape, ours) for ours, theirs in FIELDS.items()},
            "rope_theta": shape.rope_theta, "rope_scaling": scaling,
            "rope_parameters": {"rope_theta": shape.rope_theta, **(scaling or {"rope_type": "default"})},
            "dtype": str(model.dtype).removeprefix("torch."),
            "bos_token_id": None, "eos_token_id": [tokenizer.end, *others] if others else tokenizer.end,
            "pad_token_id": None, "written_by": WRITER}
