"""A tiny model with a chat template: conversations, system prompts and arguments of the template, from file to run."""
import json

import pytest
import tokenizers
import torch
import transformers

import llm
from llm.policy.hf import HFTokenizer
from llm.policy.load import load_model
from llm.policy.tokenizer import CharTokenizer, template_arguments
from llm.rollout import demonstrated, prompts_of
from llm.tasks.user import UserTask
from spinup.cli import run as cli
from spinup.errors import UserError

# The template adds a system turn, as in SmolLM2. An argument changes the end of the prompt, as in Qwen3. The generation
# tags of transformers mark the assistant's tokens.
TEMPLATE = ("{% if messages[0].role != 'system' %}<|im_start|>system\nBe good.<|im_end|>\n{% endif %}"
            "{% for m in messages %}<|im_start|>{{ m.role }}\n"
            "{% if m.role == 'assistant' %}{% generation %}{{ m.content }}<|im_end|>{% endgeneration %}"
            "{% else %}{{ m.content }}<|im_end|>{% endif %}{{ '\\n' }}{% endfor %}"
            "{% if add_generation_prompt %}<|im_start|>assistant\n"
            "{% if enable_thinking is defined and not enable_thinking %}<think></think>{% endif %}{% endif %}")
TINY = {"total_steps": 2, "held_out": 4, "quiet": True, "tensorboard": False, "threads": 1, "preset": "none",
        "max_tokens": 8, "prompts": 2, "samples": 2}
TALK = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}]
START = "<|im_start|>system\n{}<|im_end|>\n<|im_start|>user\n"


def write(folder, template=TEMPLATE):
    """Write the checkpoint of a small random Qwen2 whose tokens are bytes; return its folder."""
    letters = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    core = tokenizers.Tokenizer(tokenizers.models.BPE({letter: i for i, letter in enumerate(letters)}, []))
    core.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    core.decoder = tokenizers.decoders.ByteLevel()
    core.add_special_tokens(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    whole = transformers.PreTrainedTokenizerFast(tokenizer_object=core, eos_token="<|im_end|>",
                                                 pad_token="<|endoftext|>")
    whole.chat_template = template
    whole.save_pretrained(folder)
    torch.manual_seed(0)
    transformers.AutoModelForCausalLM.from_config(transformers.Qwen2Config(
        vocab_size=259, hidden_size=32, intermediate_size=40, num_hidden_layers=1, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=256, bos_token_id=None,
        eos_token_id=258)).save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A tiny checkpoint with a chat template."""
    return write(tmp_path_factory.mktemp("chat"))


@pytest.fixture(autouse=True)
def inside(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def read(tokenizer, ids):
    """The text of these ids, with the special tokens."""
    return tokenizer.tokenizer.decode(ids)


def length(prompt, response):
    return float(len(response))


# Catches: a policy that reads only the last turn of a conversation; a system turn that occurs twice.
@pytest.mark.long
def test_policy_reads_the_whole_conversation(folder):
    start = load_model(folder)
    problem = UserTask([{"prompt": TALK}, {"prompt": "x"}], length).problem("here", {"prompt": TALK})
    ids = prompts_of([problem], start.tokenizer, start.model, 8).ids[0]
    assert read(start.tokenizer, ids) == START.format("Be good.") + (
        "a<|im_end|>\n<|im_start|>assistant\nb<|im_end|>\n<|im_start|>user\nc<|im_end|>\n<|im_start|>assistant\n")
    system = {"role": "system", "content": "x"}
    tokenizer = HFTokenizer(folder, system="y")
    assert read(tokenizer, tokenizer.prompt([system, *TALK])).startswith(START.format("x") + "a")
    assert read(tokenizer, tokenizer.prompt("hi")).startswith(START.format("y") + "hi")


# Catches: an empty system prompt that is treated as no system prompt; a text where the template expects a bool.
def test_system_prompt_and_template_arguments_are_applied_and_checked(folder):
    tokenizer = HFTokenizer(folder, "", {"enable_thinking": False})
    assert read(tokenizer, tokenizer.prompt("hi")) == START.format("") + (
        "hi<|im_end|>\n<|im_start|>assistant\n<think></think>")
    found = template_arguments("enable_thinking=False, a=2,b = 0.5,c=none,d=1.2.3,e=x y,f=07,g=٣")
    assert found == {"enable_thinking": False, "a": 2, "b": 0.5, "c": None, "d": "1.2.3", "e": "x y", "f": "07",
                     "g": "٣"}
    for text in "thinking", "=3", "a b=3":
        with pytest.raises(UserError, match="--template .* write arguments as name=value"):
            template_arguments(text)
    with pytest.raises(UserError, match="no argument 'enable_thinkin'. Did you mean 'enable_thinking'?"):
        HFTokenizer(folder, None, {"enable_thinkin": False})
    with pytest.raises(UserError, match="--system needs a model with a chat template"):
        CharTokenizer("ab").set_chat("x", {})
    with pytest.raises(UserError, match="--template needs a model with a chat template"):
        llm.grpo("reverse", template="a=1", **TINY)


# Catches: the template's own exception in place of a UserError.
def test_conversation_that_the_template_refuses_raises_user_error(tmp_path):
    template = ("{% if messages[0].role == 'system' %}{{ raise_exception('no system role') }}{% endif %}"
                "{% for m in messages %}{{ m.content }}{% endfor %}")
    tokenizer = HFTokenizer(write(tmp_path, template), "x")
    with pytest.raises(UserError, match="refuses a conversation of the turns system, user .no system role.; change"):
        tokenizer.prompt("hi")


# Catches: chat settings that are lost in the run's folder, when the run resumes, in a reward model, or in a run that
# starts from this run; an empty --system that is refused.
@pytest.mark.long
def test_run_keeps_its_system_prompt_and_template_arguments(folder, tmp_path, capsys, monkeypatch):
    rows = [{"prompt": [{"role": "user", "content": f"{i}"}, *TALK[1:]]} for i in range(12)]
    (tmp_path / "talks.jsonl").write_text("\n".join(map(json.dumps, rows)))
    words = ["llm", "grpo", "--task", "talks.jsonl", "--model", folder, "--system", "", "--template",
             "enable_thinking=false", "--reward", "length.py:length", "--exp-name", "a",
             *(x for k, v in TINY.items() for x in (f"--{k.replace('_', '-')}", str(v)))]
    (tmp_path / "length.py").write_text("def length(prompt, response):\n    return float(len(response))\n")
    assert cli(words) == 0
    config = json.loads((tmp_path / "runs/a/a_s1/config.json").read_text())
    assert (config["system"], config["template"]) == ("", {"enable_thinking": False})
    policy = llm.load("runs/a/a_s1")
    assert (policy.tokenizer.system, policy.tokenizer.arguments) == ("", {"enable_thinking": False})
    again = llm.grpo("talks.jsonl", model=folder, reward="length.py:length", system="", exp_name="a",
                     template="enable_thinking=false", resume="runs/a/a_s1", **TINY | {"total_steps": 3})
    assert again.policy.tokenizer.system == "" and cli(["eval", "runs/a/a_s1", "--episodes", "3"]) == 0
    shared = {k: TINY[k] for k in TINY.keys() - {"prompts", "samples"}} | {"batch": 2}
    later = llm.sft([{"prompt": "x", "answer": "y"}, {"prompt": "z", "answer": "y"}], model="runs/a/a_s1",
                    system="other", **shared)
    assert (later.policy.tokenizer.system, later.policy.tokenizer.arguments) == ("other", {"enable_thinking": False})
    pairs = [{"prompt": TALK[i:], "chosen": "d", "rejected": "e"} for i in (0, 2)]
    judge = llm.reward_model(pairs, model=folder, system="judge", calibration=4, **shared)
    loaded = llm.load(judge.directory)
    assert loaded.tokenizer.system == "judge" and loaded(TALK, "x") == judge.policy(TALK, "x") != loaded("c", "x")
    capsys.readouterr()
    assert cli(["watch", "runs/a/a_s1"]) == 0 and "assistant: b\nuser: c" in capsys.readouterr().out


# Catches: prompts with the date on which a run is resumed.
def test_resumed_run_keeps_the_date_on_which_it_started(tmp_path, monkeypatch):
    dated = "{% if date_string is not defined %}{% set date_string = strftime_now('%d %b %Y') %}{% endif %}"
    folder, days = write(tmp_path / "model", dated + "{{ date_string }}" + TEMPLATE), iter(["01 Jan", "02 Jan"])
    monkeypatch.setattr(HFTokenizer, "today", lambda self: {"date_string": next(days)})
    rows = [{"prompt": f"{i}", "answer": "y"} for i in range(4)]
    settings = {k: TINY[k] for k in TINY.keys() - {"prompts", "samples", "total_steps"}} | {
        "batch": 2, "model": folder, "exp_name": "a"}
    llm.sft(rows, total_steps=1, **settings)
    again = llm.sft(rows, total_steps=2, resume="runs/a/a_s1", **settings)
    assert again.policy.tokenizer.arguments == {"date_string": "01 Jan"}


LONG = [{"role": "system", "content": "x"}, *TALK, {"role": "assistant", "content": "dd"},
        {"role": "user", "content": "e"}, {"role": "assistant", "content": "f"}]


# Catches: user turns that are imitated; end tokens that are not imitated; ids that differ from those of the chat
# template.
@pytest.mark.parametrize("talk", [LONG, LONG[1:5], LONG[1:]])
def test_all_assistant_turns_are_imitated(talk, folder):
    start = load_model(folder)
    rows = [{"messages": talk}, {"messages": TALK[:2]}, {"messages": LONG[:3]}]
    task = UserTask(rows, length)
    problems = [task.problem("here", row) for row in rows]
    texts = [task.demonstration(p, None) for p in problems]
    batch = demonstrated(task, start.tokenizer, start.model, problems, texts, 100)
    theirs = transformers.AutoTokenizer.from_pretrained(folder).apply_chat_template(
        talk, return_dict=True, return_assistant_tokens_mask=True)
    n = int(batch.prompts.lengths[0])
    ids = batch.prompts.ids[0, :n].tolist() + batch.responses.ids[0, :batch.responses.lengths[0]].tolist()
    mask = [0] * n + batch.responses.mask[0, :batch.responses.lengths[0]].int().tolist()
    cut = len(theirs["input_ids"]) - 1                                    # the newline after the last turn
    assert ids == theirs["input_ids"][:cut] and mask == theirs["assistant_masks"][:cut]
    assert theirs["input_ids"][cut] not in start.tokenizer.ends
    one = demonstrated(task, start.tokenizer, start.model, problems[1:2], texts[1:2], 100).responses
    assert read(start.tokenizer, one.ids[0]) == "b<|im_end|>" and one.mask.all()
    assert batch.responses.finished.all() and (batch.responses.mask[0].sum() > batch.responses.mask[1].sum())
    short = demonstrated(task, start.tokenizer, start.model, problems[:1], texts[:1], 4).responses
    assert short.ids[0].tolist() == ids[n:n + 4] and read(start.tokenizer, short.ids[0]).startswith("b<|im_end|>")


# Catches: ids that are joined although the template changes earlier turns, as that of Qwen3 does when it removes
# earlier thoughts; earlier turns that are imitated together with a completion.
def test_turns_to_imitate_depend_on_the_template_and_the_row(tmp_path):
    template = "{% for m in messages %}{% if loop.last %}!{% endif %}{{ m.content }}<|im_end|>{% endfor %}"
    tokenizer = HFTokenizer(write(tmp_path, template))
    with pytest.raises(UserError, match="changes earlier turns of a conversation when others follow"):
        tokenizer.turns(LONG)
    task = UserTask([{"prompt": TALK, "completion": "d"}, {"prompt": "x", "answer": "y"}], length)
    assert task.problem("here", {"prompt": TALK, "completion": "d"}).turns is None
    task.alphabet = None
    found = [task.problem("here", {"messages": talk}).turns for talk in (LONG, LONG[:3])]
    assert found == [LONG, None]


# Catches: a run that reads or learns only a part of a conversation.
@pytest.mark.long
def test_sft_learns_every_turn_of_a_conversation(folder, tmp_path):
    rows = [{"messages": [{"role": "user", "content": f"{i}"}, *LONG[2:]]} for i in range(6)]
    shared = {k: TINY[k] for k in TINY.keys() - {"prompts", "samples"}}
    shared |= {"total_steps": 60, "max_tokens": 120, "batch": 4}
    result = llm.sft(rows, model=folder, lr=1e-2, warmup=5, **shared)
    said = [result.policy.respond(LONG[1:n], greedy=True, max_tokens=4) for n in (2, 4, 6)]
    assert said == [["b"], ["dd"], ["f"]]
