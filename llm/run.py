"""Training run of a language model: sampling, evaluation, rows of the log, and saved state."""
import math
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from llm.clock import Clock
from llm.columns import METRICS, PHASES, TAKEN, Means, statistics
from llm.config import LanguageConfig
from llm.diagnose import diagnose as sentences
from llm.learn import Loss, backward, kl_to_reference
from llm.memory import as_before, enough_memory, fit, out_of_memory
from llm.parallel import distributed, shared, sum_gradients
from llm.policy import fsdp
from llm.policy.generate import Sampler
from llm.policy.load import Start, checksum
from llm.policy.policy import LanguagePolicy, check_context
from llm.policy.tokenizer import CharTokenizer
from llm.rollout import Batch, demonstrated, sample, separated, solved
from llm.samples import as_lines, true_rewards
from llm.tasks.check import problems_of
from llm.tasks.held_out import EVALUATION, Overlap, distinct
from llm.tasks.names import fingerprints
from llm.tasks.parts import same_parts
from llm.tasks.task import Problem, Task, longest_prompt, speech, stateful
from spinup.core.fast.adam import FlatAdam
from spinup.errors import UserError
from spinup.machine import check_same_device, cores
from spinup.runs.display import duration, short
from spinup.runs.folders import describe
from spinup.runs.log import SAMPLES, read_progress
from spinup.runs.records import by_command
from spinup.runs.result import Result
from spinup.runs.training import Training

INITIAL = re.compile(r"start_.+_[0-9a-f]{8}")    # folder name of an initial policy, as in `find_start`
WIDE = 128              # from this width on, a second thread saves time
TOKENIZER = "tokenizer"                         # folder of Hugging Face's tokenizer in the run folder


class Run(Training):
    """Training run of the policy `start` on `task`; see `Training`.

    An algorithm uses it to sample, evaluate, log and save. Sampling is implemented in `llm.rollout`, gradients in
    `llm.learn`.
    """

    epochs = 40
    results = {**Training.results, "samples": SAMPLES}

    def __init__(self, config: LanguageConfig, task: Task, start: Start, resume: str | Path | None = None):
        fsdp.check(config)
        self.task, self.model, self.tokenizer = task, start.model, start.tokenizer
        self.measure, self.pretrained = task.measure, not isinstance(self.tokenizer, CharTokenizer)
        if self.pretrained:
            self.epochs = config.total_steps / config.updates_per_row
        threads = min(2, cores()) if self.model.shape.width >= WIDE else 1
        super().__init__(config, task.name, self.model.device, threads, resume)
        self.may_grow = not INITIAL.fullmatch(self.directory.parent.name)
        if self.longer and not self.may_grow:
            raise UserError(f"{describe(self.directory)} is the initial policy of other runs and must not change; "
                            "train another one with `spinup llm sft`, and use it with --model DIR")
        self.next_words = self.next_words if by_command(config) else ("plot",)
        self.max_tokens, longest = config.response_tokens(task), longest_prompt(task, self.tokenizer)
        if self.resumed:
            as_before(config, self.directory, self.tokenizer)
        if self.pretrained:
            fit(config, self.model, longest, self.max_tokens, self.resumed, task.judge and task.judge.model)
        self.start, self.reference, self.checksum = start, start.reference(), start.checksum()
        self.generator = torch.Generator(self.device).manual_seed(config.seed)
        self.sampler = Sampler(self.model, self.tokenizer.ends)
        self.divided: fsdp.Divided | None = None                          # the policy, once `keep` has divided it
        self.means, self.source, self.clock = Means(), None, Clock(self.device)
        self.timed = self.clock.timed
        self.own: tuple[str, ...] = ("off_policy",) if config.off_policy else ()
        self.parts_of_reward: list[str] | None = None                     # their names, known from the first rewards
        self.tests: Callable[[], dict[str, Any]] = dict                   # numbers for `log` before the first update
        self.best, self.seconds_of_row = {}, 0.0                          # seconds of the row before the first update
        self.held_out = distinct(problems_of(task, config.held_out, np.random.default_rng(EVALUATION), True))
        self.overlap = Overlap(task, self.held_out)
        check_context(longest, self.max_tokens, self.model)
        self.others: dict[str, Any] = dict(fingerprints(config.task, config.reward))
        if task.judge is not None:
            task.judge.serve(self.device, config.micro_batch)
            self.depend_on("the reward model", task.judge.model)
        if config.off_policy:
            from llm.ahead import Source  # not above: other runs need neither processes nor HTTP
            self.source = Source(self, longest + self.max_tokens)

    # Methods for the algorithms.

    def adam(self, model: nn.Module, **settings: float) -> FlatAdam | fsdp.DividedAdam:
        """Return Adam for all trainable weights of a model; the settings are those of `FlatAdam`."""
        self.sampler.steps.clear()                                        # Adam moves the weights that they read
        return fsdp.DividedAdam(model, **settings) if self.config.fsdp else FlatAdam(model.parameters(), **settings)

    def problems(self, n: int) -> list[Problem]:
        """Return `n` problems to train on. Warn if some of them are held-out problems."""
        found = self.source.problems(n) if self.source else problems_of(self.task, n, self.rng)
        return self.overlap.check(found, self.display.say_once)

    def sample(self, problems: Sequence[Problem], samples: int = 1, greedy: int = 0,
               generator: torch.Generator | None = None) -> Batch:
        """Sample responses of the current policy to each problem, with rewards: `llm.rollout.sample`, timed.

        With an engine or a lag, see `llm.ahead.Source.sample`; given a generator or `greedy`, nothing changes.
        """
        with enough_memory(self.config), self.divided.gathered() if self.divided else nullcontext():
            if self.source and generator is None and not greedy:
                batch = self.source.sample(problems, samples)
            else:
                draw = partial(sample, self.sampler, self.task, self.tokenizer, samples=samples, greedy=greedy,
                               max_tokens=self.max_tokens, temperature=self.config.temperature, timed=self.timed)
                batch = shared(draw, problems, generator or self.generator)
        self.parts_of_reward = same_parts(self.parts_of_reward, batch.parts, TAKEN, self.measure)
        return batch

    def demonstrated(self, problems: Sequence[Problem], texts: Sequence[str]) -> Batch:
        """Turn texts into responses to imitate: `llm.rollout.demonstrated`."""
        return demonstrated(self.task, self.tokenizer, self.model, problems, texts, self.max_tokens)

    def backward(self, batch: Batch, rows: Tensor, loss: Callable[..., Loss], *per_row: Tensor, by_rows: bool = False,
                 **whole: Any) -> dict[str, Tensor]:
        """Add the gradient of `loss` over rows `[n]` of a batch: `llm.learn.backward`, with checks.

        Raise NonFiniteError if the loss is not finite.
        """
        found = backward(self.model, self.config, batch, rows, loss, *per_row, by_rows=by_rows, **whole)
        if self.workers.size > 1:
            sum_gradients(self.parts)
        self.means.watch_ratio(found.pop("ratio_min"), found.pop("ratio_max"))
        self.check_finite(rewards=batch.rewards, loss=found["loss"], entropy=found["entropy"])
        return found

    def add(self, /, **values: float | Tensor) -> None:
        """Add the numbers of one update; a row of the log holds their means over its updates."""
        self.means.add(values)

    def depend_on(self, name: str, model: nn.Module) -> None:
        """Refuse to resume the run if the weights of a model that does not learn have changed."""
        self.others[name] = checksum(model)

    def columns(self, *names: str) -> None:
        """Name this method's columns besides `METRICS`; their numbers are given to `add`."""
        self.own += names

    def first_row(self, tests: Callable[[], dict[str, Any]]) -> None:
        """Give the function that returns the numbers of `log` for a row before the first update; see `announce`."""
        self.tests = tests

    def record(self, batch: Batch) -> None:
        """Add the statistics of a whole batch, before the method drops any group."""
        self.add(**statistics(batch))

    def evaluate(self, greedy: bool = True) -> list[Batch]:
        """Responses to the held-out problems: samples, equally many per problem and at most `held_out` in all; then,
        with `greedy`, the most likely response to each problem.

        Each call uses the same problems and a new generator with the same seed. A pretrained model samples all in one
        batch: twice as many rows hardly take longer.
        """
        generator = torch.Generator(self.device).manual_seed(EVALUATION)
        samples = max(1, self.config.held_out // len(self.held_out))
        with self.clock.evaluating():
            if self.pretrained and greedy:
                return separated(self.sample(self.held_out, samples + 1, 1, generator))
            found = [self.sample(self.held_out, samples, 0, generator)]
            if greedy:
                found.append(self.sample(self.held_out, 1, 1, generator))
            return found

    def result(self, reward_model: Any = None) -> Result | None:
        """End the run and return its result, with the policy or the reward model. Ranks other than 0 return None."""
        self.finish()
        model = self.divided.undivided() if self.divided else self.model
        if not self.leads:
            return None
        policy = reward_model or LanguagePolicy(model, self.tokenizer, self.max_tokens, self.config.temperature,
                                                self.config.seed, **speech(self.task))
        progress = read_progress(self.directory) if self.rows else {}
        return Result(policy, progress, self.directory, self.status, self.best.get(self.measure, math.nan),
                      self.measure)

    # Methods for `Training`.

    def keep(self, **parts: Any) -> None:
        super().keep(**distributed(self, parts), **stateful(self.task))

    def prepare_folder(self) -> None:
        if self.pretrained:
            self.tokenizer.save(self.directory / TOKENIZER)

    def __exit__(self, kind: type | None, error: BaseException | None, trace: Any) -> None:
        super().__exit__(kind, error, trace)
        if told := out_of_memory(error, self.config):
            raise told from None

    def describe_subject(self) -> dict[str, Any]:
        fixed = {} if self.may_grow else {"may_grow": False}
        return {**replace(self.start, model=self.model).described(TOKENIZER), "max_tokens": self.max_tokens, **fixed}

    def after_update(self) -> None:
        self.clock.end_update()
        if self.pretrained and not self.update:
            each = self.clock.since()
            seconds = each * self.end + self.seconds_of_row * math.ceil(self.epochs)
            self.display.say(f"an update takes {each:.2g} s: about {duration(seconds)} for {self.end:,} updates and "
                             "their evaluations")

    def updates(self, total: int, steps_each: int = 1) -> Iterator[int]:
        self.clock.restart()                                              # pairs were sampled before
        for update in super().updates(total, steps_each):
            if self.source:
                self.source.mark()
            yield update

    def announce(self) -> None:
        """Write a pretrained model's first row, if all columns are known."""
        began = time.perf_counter()
        if self.pretrained and not self.steps and not callable(getattr(self.config, "loss", None)):
            self.log(**self.tests())
            self._write_row()
            self.seconds_of_row = self.clock.began - began

    def row(self) -> dict[str, float]:
        sampled, greedy = self.evaluate()
        self.best = {"held_out_accuracy": solved(sampled.rewards), "held_out_greedy": solved(greedy.rewards),
                     "held_out_reward": float(sampled.rewards.mean()),
                     **{f"held_out_reward_{name}": float(x.mean()) for name, x in sampled.parts.items()}}
        if more := true_rewards(self.task, sampled):
            self.best["held_out_gold"] = float(np.mean(more["true_reward"]))
        self.log_file.write_samples(as_lines(sampled, self.steps, more))
        if self.measure in self.logged:
            self.best[self.measure] = self.logged[self.measure]
        means = self.means.of_row()
        seconds = self.clock.training
        with self.timed("evaluation"):
            kl, kl_of_response = kl_to_reference(self.model, self.reference, self.config, sampled)
        if self.rows == 1:                                                # parts of the reward, then the user's loss
            self.own += tuple(f"reward_{name}" for name in self.parts_of_reward or ())
            self.own += tuple(sorted(means.keys() - {*METRICS, *self.own, *self.best, "tokens"}))
        shown, own = ({key: (self.logged | means).get(key, math.nan) for key in names} for names in (METRICS, self.own))
        row = {**self.best, **shown, "kl_to_initial": kl, "kl_of_response": kl_of_response, **own,
               **{f"{name}_seconds": round(self.clock[name], 4) for name in PHASES},
               "tokens_per_second": round(self.means.sums["tokens"] / seconds)}
        self.means.clear()
        self.clock.restart()
        return row

    def diagnose(self, row: dict[str, float]) -> list[str]:
        return sentences(row, self.max_tokens, self.measure)

    def outcome(self) -> dict[str, Any]:
        return {self.measure: None, **self.best}

    def summary(self) -> str:
        if self.measure != "held_out_accuracy":
            gold = f", true reward {self.best['held_out_gold']:.3f}" if "held_out_gold" in self.best else ""
            return f"{short(self.measure)} {self.best.get(self.measure, math.nan):.3f}{gold}"
        return (f"held-out accuracy {self.best.get('held_out_accuracy', math.nan):.3f} sampled, "
                f"{self.best.get('held_out_greedy', math.nan):.3f} greedy")

    def save_subject(self) -> dict[str, Any]:
        return {"generator": self.generator.get_state(), "device": self.device.type, **self.means.state_dict(),
                "best": dict(self.best), "said": sorted(self.display.said), "own": list(self.own),
                "parts": self.parts_of_reward, "initial": self.checksum, "others": self.others,
                **(self.source.state_dict() if self.source else {})}

    def load_subject(self, state: dict[str, Any]) -> None:
        """Restore the state from `save_subject`. UserError if the initial policy, another model or file that must
        not change, or the kind of device has changed."""
        check_same_device(state.get("device", self.device.type), self.device.type)
        if state.get("initial", self.checksum) != self.checksum:
            raise UserError(f"{self.start.directory or 'the initial policy'} has changed since this run began, and the "
                            "run needs it as its reference policy; restore it, or train again under another "
                            "--exp-name")
        for name, before in state.get("others", {}).items():
            if self.others.get(name, before) != before:
                raise UserError(f"{name} has changed since this run began; restore it, or train again under another "
                                "--exp-name")
        self.generator.set_state(state["generator"])
        self.own = tuple(state.get("own", ())) or self.own
        self.parts_of_reward = state.get("parts", self.parts_of_reward)
        self.means.load_state_dict(state)
        self.best, self.display.said = dict(state["best"]), set(state["said"])
        if self.source:
            self.source.load_state_dict(state)

    def close_subject(self) -> None:
        if self.source:
            self.source.close()
