"""Responses of a server or of older weights: valid answers, importance weights, faults of a server, and resuming."""
import math
import multiprocessing
import re
import time

import pytest
import torch

import llm
from llm import ahead, learn, memory
from llm.algos import grpo
from llm.algos.grpo import Config
from llm.learn import importance_weights
from llm.memory import needed
from llm.policy import engine
from llm.policy.engine import EngineError, Server, choices, models, received
from llm.policy.export import save_pretrained
from llm.policy.generate import Prompts, Responses
from llm.policy.load import load_model
from llm.policy.lora import adapt
from llm.policy.score import score
from spinup.errors import UserError, WorkerError
from spinup.runs.checkpoint import load_checkpoint
from tests.llm.conftest import SMALL
from tests.llm.server import Loopback

METHODS = {"grpo": {"samples": 4}, "reinforce": {"samples": 4}, "ppo": {"prompts": 16}, "remax": {}, "dapo": {}}
DRAWS = [{"engine": "server"}, {"engine": "server", "lag": 1}, {"lag": 1}]


@pytest.fixture
def server(beginner, tmp_path, monkeypatch):
    """A server with the model of `beginner`. After a fault, the client waits for only 0.01 s."""
    monkeypatch.setattr(engine, "WAITS", (0.01, 0.01))
    start = load_model(beginner)
    save_pretrained(tmp_path / "served", start.model, start.tokenizer)
    with Loopback(tmp_path / "served") as loopback:
        yield loopback


@pytest.fixture
def settings(beginner, tmp_path, request):
    """Settings of a short run; `server` as its engine becomes the address of the server."""
    (tmp_path / "score.py").write_text(
        "def early(prompt, response):\n    return sum(letter in 'abcde' for letter in response) / 3\n")

    def make(method="grpo", **more):
        if more.get("engine") == "server":
            more["engine"] = request.getfixturevalue("server").address
        return {**SMALL, "model": beginner, "reward": f"{tmp_path}/score.py:early", "prompts": 4, "total_steps": 4,
                "log_dir": str(tmp_path / "runs"), **METHODS[method], **more}
    return make


def weights_of(model):
    return torch.cat([p.detach().flatten() for p in model.parameters()])


GOOD = {"choices": [{"index": 1, "token_ids": [3, 9], "logprobs": {"token_logprobs": [-1.5, 0]}},
                    {"index": 0, "token_ids": [1, 2, 3], "logprobs": {"token_logprobs": [-1.0, -2.0, -9999.0]}}]}


def changed(**fields):
    first = {**GOOD["choices"][0], **fields}
    return {"choices": [{k: v for k, v in first.items() if v is not None}, GOOD["choices"][1]]}


# Catches: completions in the order of the list in place of the order of their indices.
def test_completions_of_an_answer_are_sorted_by_index():
    assert choices(GOOD, 2, 3, 10, {9}) == [([1, 2, 3], [-1.0, -2.0, -9999.0]), ([3, 9], [-1.5, 0])]


# Catches: a missing check for any of these faults.
@pytest.mark.parametrize("answer", [
    None, [], "text", {}, {"choices": None}, {"choices": [1, 2]}, {"choices": GOOD["choices"][:1]},
    {"choices": [*GOOD["choices"], GOOD["choices"][0]]}, changed(index=0), changed(index="1"), changed(index=None),
    changed(token_ids=None), changed(token_ids="39"), changed(token_ids=[]), changed(token_ids=[3, 10]),
    changed(token_ids=[-1, 9]), changed(token_ids=[3.0, 9]), changed(token_ids=[True, 9]), changed(token_ids=[9, 9]),
    changed(token_ids=[3, 4]), changed(token_ids=[3, 4, 5, 9]), changed(logprobs=None), changed(logprobs=[-1.5, 0.0]),
    changed(logprobs={"token_logprobs": [-1.5]}), changed(logprobs={"token_logprobs": [-1.5, None]}),
    changed(logprobs={"token_logprobs": [-1.5, math.nan]}), changed(logprobs={"token_logprobs": [math.nan, -1.5]}),
    changed(logprobs={"token_logprobs": [-1.5, -math.inf]}), changed(logprobs={"token_logprobs": [-1.5, -10**400]}),
    changed(logprobs={"token_logprobs": [0.1, 0.0]}), changed(logprobs={"token_logprobs": ["-1.5", 0.0]})])
def test_invalid_answer_of_a_server_raises_value_error(answer):
    with pytest.raises(ValueError):
        choices(answer, 2, 3, 10, {9})


def test_models_of_a_server_are_listed_without_adapters():
    assert models({"data": [{"id": "lora", "parent": "a"}, {"id": "a", "max_model_len": 7}]}) == [("a", 7)]
    assert models({"data": [{"id": "a", "max_model_len": "7"}]}) == [("a", None)]
    for answer in (None, {}, {"data": []}, {"data": "a"}, {"data": [{"id": 3}]}):
        with pytest.raises(ValueError):
            models(answer)


# Catches: log-probabilities of other tokens; prompts with the same random numbers; a request without the temperature.
def test_log_probabilities_of_a_server_equal_those_of_the_learner(server, beginner):
    start = load_model(beginner)
    drawn = Server(server.address, start.model, start.tokenizer, 20)
    drawn.check(20)
    rows = [start.tokenizer.prompt(x) for x in ("ab>", "ba>", "ab>")]
    found = drawn.submit(rows, 6, 5, 7, 1.5)()
    drawn.close()
    assert found["ids"].shape == (18, 5) and found["lengths"].min() < 5
    logp, _ = score(start.model, Prompts.of(rows), torch.arange(3).repeat_interleave(6), found["ids"], temperature=1.5)
    inside = torch.arange(5) < found["lengths"][:, None]
    torch.testing.assert_close(found["logp"][inside], logp[inside], atol=1e-4, rtol=0)
    sent = [body for path, body in server.asked if path == "/v1/completions"]
    assert sorted(body["seed"] for body in sent) == [7, 13, 19]
    assert all(body["stop_token_ids"] == sorted(start.tokenizer.ends) and body["ignore_eos"] for body in sent)


# Catches: weights that are not truncated; NaN from padding; the inverse ratio.
def test_importance_weights_are_truncated_ratios():
    logp = torch.tensor([[0.5, 0.25, 0.8, math.nan]]).log()
    r = Responses(torch.zeros(1, 4), logp, torch.tensor([[1.0, 1, 1, 0]]), *[torch.zeros(1)] * 3)
    assert importance_weights(r, 2.0) == 1.0
    r.drawn = torch.tensor([[0.4, 0.5, 0.1, math.nan]]).log()
    torch.testing.assert_close(importance_weights(r, 2.0), torch.tensor([[1.25, 0.5, 2.0, 1.0]]))
    assert importance_weights(r)[0, 2] == pytest.approx(8)
    mean = (1.25 * 0.5 * 8) ** (1 / 3)                                    # GSPO: one weight for the whole response
    assert importance_weights(r, whole=True).tolist() == [[pytest.approx(mean)]]
    kept = r[torch.tensor([0, 0])].trimmed()
    assert kept.drawn.shape == (2, 1)


# Catches: a method's loss without importance weights; a server that keeps the initial weights after an update; a second
# batch from the same weights that is treated as a batch from older weights.
@pytest.mark.long(*(f"{method}-draw{i}" for method in METHODS for i in (1, 2)))
@pytest.mark.parametrize("draw", DRAWS)
@pytest.mark.parametrize("method", METHODS)
def test_methods_learn_from_an_engine_or_from_older_weights(method, draw, settings, fork_workers):
    given = settings(method, lr=0.02, warmup=0, **draw)
    result = getattr(llm, method)(**given)
    assert result.status == "finished" and result.progress["steps"][-1] == 4
    far = [x for x in result.progress["off_policy"] if not math.isnan(x)]
    if draw.get("lag"):
        assert len(far) > 1 and max(far) > 0.1 and (method == "dapo" or far[0] == 0)
    else:
        assert far and max(far) == 0                          # the server has the weights of each update
    assert not (result.directory / "engine").exists()
    none = getattr(llm, method)(**{**given, "max_weight": 1e-30, "total_steps": 2})
    start = weights_of(load_model(given["model"]).model)
    assert torch.allclose(weights_of(none.policy.model), start, atol=1e-7)
    assert not torch.allclose(weights_of(result.policy.model), start, atol=1e-3)


# Catches: importance weights from log-probabilities at temperature 1, which is vLLM's default.
def test_log_probabilities_at_temperature_1_are_refused(settings, server):
    llm.grpo(**settings(engine="server", temperature=0.5, total_steps=1))
    server.raw = True
    with pytest.raises(UserError, match="at temperature 1, not 0.5; start it with --logprobs-mode processed_logprobs"):
        llm.grpo(**settings(engine="server", temperature=0.5, total_steps=1))


# Catches: a check that counts as done although the scores of the responses do not depend on the temperature.
def test_temperature_check_of_a_uniform_policy_is_inconclusive(beginner, settings, server):
    start = load_model(beginner)
    prompts, of = Prompts.of([start.tokenizer.encode("ab>")] * 2), torch.arange(2)
    ids, lengths = torch.tensor([[1, 2, 0], [3, 0, 0]]), torch.tensor([3, 2])
    for model, told in ((start.model, True), (start.model.requires_grad_(False), False)):
        if not told:
            for p in model.parameters():
                p.mul_(0)                                                 # a uniform policy at any temperature
        logp = score(model, prompts, of, ids, temperature=0.5)[0].detach()
        found = {"ids": ids, "logp": logp, "lengths": lengths}
        assert ahead.check_temperature(model, prompts, found, 0.5, "here") is told


# Catches: adapters that are merged into the weights of the second process, where rounding to bf16 removes them.
def test_second_process_has_adapters_that_are_not_merged(beginner, monkeypatch):
    monkeypatch.setattr(ahead, "ProcessPoolExecutor", lambda *_: None)
    model = adapt(load_model(beginner).model.bfloat16(), 2, 2.0)
    process = ahead.Process(model, [0], 1)
    with torch.no_grad():
        for b in model.blocks[0].qkv.lora_b:
            b.fill_(1e-5)
    process.sync(None)
    assert all(map(torch.equal, process.copy.parameters(), model.parameters()))
    assert process.copy.blocks[0].qkv.lora_b[0].data_ptr() != model.blocks[0].qkv.lora_b[0].data_ptr()


# Catches: a server that gets the frozen weights without the adapters.
@pytest.mark.long("draw2")
@pytest.mark.parametrize("draw", DRAWS)
def test_engine_and_second_process_sample_with_the_adapters(draw, settings, fork_workers):
    result = llm.grpo(**settings(lr=0.05, warmup=0, lora=4, **draw))
    found = max(result.progress["off_policy"])
    assert found > 0.1 if draw.get("lag") else found == 0


# Catches: the column `off_policy` in a run without importance weights.
def test_on_policy_run_has_no_off_policy_column(settings):
    assert "off_policy" not in llm.grpo(**settings(total_steps=1)).progress


# Catches: responses from weights that are not exactly one update older; responses that are paired with other problems.
def test_lag_is_exactly_one_update(settings, fork_workers, monkeypatch):
    seen, real = [], ahead.sample

    def spy(given, task, tokenizer, problems, **more):
        batch = real(given, task, tokenizer, problems, **more)
        with torch.no_grad():
            logp, _ = score(given.model, batch.prompts, batch.responses.of, batch.responses.ids)
        seen.append((float(((logp - batch.responses.logp).abs() * batch.responses.mask).max()), weights_of(given.model),
                     batch))
        return batch

    monkeypatch.setattr(ahead, "sample", spy)
    cfg = settings(lr=0.05, warmup=0, lag=1, anneal=False)
    llm.grpo(**cfg)
    assert [x[0] < 1e-4 for x in seen] == [True, False, False, False]     # the first two batches have the same weights
    model = load_model(cfg["model"]).model
    for i in range(1, 4):
        torch.nn.utils.vector_to_parameters(seen[i - 1][1], model.parameters())       # the weights one update earlier
        r = seen[i][2].responses
        logp, _ = score(model, seen[i][2].prompts, r.of, r.ids)
        torch.testing.assert_close(logp * r.mask, r.logp, atol=1e-4, rtol=0)


# Catches: a checkpoint without the batch that is being sampled; a batch that depends on more than the seed.
@pytest.mark.long("ppo", "dapo")
@pytest.mark.parametrize("method", ["grpo", "dapo", "ppo"])
def test_stopped_run_with_a_lag_resumes_with_the_same_curve(method, settings, fork_workers, curve, tmp_path):
    given = settings(method, lag=1, lr=0.02, total_steps=8, checkpoint_steps=10**6)
    whole = getattr(llm, method)(**{**given, "log_dir": f"{tmp_path}/whole"})
    given["checkpoint_steps"] = 3

    def stop(row):
        if row["steps"] == 5:
            raise RuntimeError("killed")

    with pytest.raises(RuntimeError, match="killed"):
        getattr(llm, method)(**given, exp_name="x", on_row=stop)
    (directory,) = (tmp_path / "runs/x").iterdir()
    assert load_checkpoint(directory / "checkpoint.pt")["subject"]["flight"]["prompts"] == given["prompts"]
    again = getattr(llm, method)(**given, exp_name="x", resume=directory)
    assert curve(directory) == curve(whole.directory) and len(curve(directory)) == 9
    assert torch.equal(weights_of(again.policy.model), weights_of(whole.policy.model))


def faults(monkeypatch, server, when, status, text, times=10**9, wait=0.0):
    """Make the next `times` answers of the server at the address `when` wrong, each after `wait` seconds."""
    left = [times]

    def broken(path, body):
        if path != when or left[0] <= 0 or (path == "/collective_rpc" and "method" not in body):
            return None
        left[0] -= 1
        time.sleep(wait)
        return status, text
    server.broken = broken


FAULTS = {                                                                # address, status, text, words
    "down": ("/v1/completions", 500, b"no memory", "answered 500 .no memory., 3 times in a row"),
    "no JSON": ("/v1/completions", 200, b"<html>", "sent a wrong answer .Expecting value"),
    "cut": ("/v1/completions", 200, b'{"choices": [', "sent a wrong answer"),
    "too few": ("/v1/completions", 200, b'{"choices": []}', "sent a wrong answer .it has 0 completions, not 4"),
    "refused": ("/v1/completions", 400, b"too long", "answered 400 .too long."),
    "reload": ("/collective_rpc", 500, b"shape", "answered 500 .shape."),
    "reload refused": ("/collective_rpc", 404, b"gone", "answered 404 .gone., so it did not reload the weights in ")}


# Catches: a fault that is not detected; an error without a checkpoint; a checkpoint from the middle of an update.
@pytest.mark.long("cut-0", "too few-0", "refused-0", "reload refused-0")
@pytest.mark.parametrize("lag", [0, 1])
@pytest.mark.parametrize("fault", FAULTS)
def test_run_with_a_failing_server_ends_with_a_valid_checkpoint(fault, lag, settings, server, monkeypatch, cli,
                                                                tmp_path):
    path, status, text, words = FAULTS[fault]

    def fail(row):
        if row["steps"] == 3:
            faults(monkeypatch, server, path, status, text)

    given = settings(engine="server", lag=lag, total_steps=7, checkpoint_steps=10**6)
    with pytest.raises(WorkerError, match=f"the server at {server.address} {words}.*; to resume, type: spinup resume "):
        llm.grpo(**given, exp_name="x", on_row=fail)
    (directory,) = (tmp_path / "runs/x").iterdir()
    assert load_checkpoint(directory / "checkpoint.pt")["steps"] in (3, 4)
    server.broken = None
    done = cli("resume", directory)
    assert done.code == 0, done.err
    steps = [int(line.split(",")[1]) for line in (directory / "progress.csv").read_text().splitlines()[1:]]
    assert steps == [1, 2, 3, 4, 5, 6, 7]


# Catches: a missing second attempt.
@pytest.mark.parametrize("fault", ["down", "no JSON", "too few", "reload"])
def test_temporary_fault_of_a_server_does_not_end_the_run(fault, settings, server, monkeypatch):
    faults(monkeypatch, server, *FAULTS[fault][:3], times=2)
    assert llm.grpo(**settings(engine="server", total_steps=2)).status == "finished"


@pytest.mark.long
def test_late_or_dead_server_raises_worker_error(settings, server, monkeypatch):
    faults(monkeypatch, server, "/v1/completions", 200, b"{}", wait=1.0)
    with pytest.raises(WorkerError, match="did not answer within 0.1 s, 3 times in a row"):
        llm.grpo(**settings(engine="server", engine_timeout=0.1, prompts=1))
    server.broken = None
    given = settings(engine="server", exp_name="x", on_row=lambda row: server.__exit__())
    with pytest.raises(WorkerError, match="does not answer .*refused"):
        llm.grpo(**given)


# Catches: a run that waits forever for a killed process.
def test_killed_sampling_process_raises_worker_error(settings, fork_workers):
    def kill(row):
        for child in multiprocessing.active_children():
            child.kill()

    with pytest.raises(WorkerError, match="the process that samples has ended.*; to resume, type: spinup resume "):
        llm.grpo(**settings(lag=1, on_row=kill, total_steps=20))


# Catches: a timeout for each piece of an answer. A server that sends one byte per second would then never be late.
def test_timeout_applies_to_the_whole_answer():
    class Slow:
        def read1(self, most):
            time.sleep(0.02)
            return b" "

    with pytest.raises(TimeoutError):
        received(Slow(), 0.1)


# Catches: an estimate of memory without the second process.
def test_memory_estimate_includes_the_second_process(beginner):
    shape, size = load_model(beginner).model.shape, {"size": 4, "prompt": 3, "response": 3, "rows": 8}
    alone, server, two = (needed(shape, 1000, Config(**x), **size)["second process"]
                          for x in ({}, {"lag": 1, "engine": "http://a:1"}, {"lag": 1}))
    assert alone == server == 0 and two > 4 * 1000
    few, many = (needed(shape, 1000, Config(lag=1, prompts=n, samples=4), **size) for n in (4, 8))
    assert many["second process"] > few["second process"] and many["KV caches"] == few["KV caches"]


# Catches: KV caches for all responses of an update, although a server samples them.
@pytest.mark.parametrize("engine, rows", [("own", 32), ("http://a:1", 8)])
def test_memory_estimate_with_a_server_has_only_caches_of_evaluation(engine, rows, beginner, monkeypatch):
    asked = []
    monkeypatch.setattr(memory, "needed", lambda *args: asked.append(args[6]) or needed(*args))
    model = load_model(beginner).model
    memory.fit(Config(engine=engine, prompts=8, samples=4, held_out=2, quiet=True), model, 3, 3)
    assert set(asked) == {rows}


# Catches: advice without the settings that determine the size of the KV caches.
def test_advice_for_too_large_kv_caches_names_their_settings(beginner, monkeypatch):
    monkeypatch.setattr(memory, "free_memory", lambda: 1e9)
    model = load_model(beginner).model
    with pytest.raises(UserError, match="choose a smaller --model, --max-tokens, --prompts, --samples or --held-out"):
        memory.fit(Config(prompts=65536, samples=100, quiet=True), model, 3, 3)


# Catches: an extra forward pass for log-probabilities that the gradient step computes too; a different gradient.
def test_bf16_batch_with_one_gradient_step_is_not_rescored(settings, monkeypatch):
    given = settings(lr=1e-5, warmup=0, dtype="bfloat16", total_steps=2)
    scored, real = [], learn.logp_under
    monkeypatch.setattr(learn, "logp_under", lambda *args: scored.append(1) or real(*args))
    fresh = llm.grpo(**given)
    assert not scored and fresh.progress["ratio_max"][-1] == fresh.progress["ratio_min"][-1] == 1
    monkeypatch.setattr("llm.algos.grpo.rescored", lambda model, cfg, batch, once: learn.rescored(model, cfg, batch))
    again = llm.grpo(**given)
    assert scored and fresh.progress["grad_norm"] == pytest.approx(again.progress["grad_norm"], rel=0.1)


# Catches: a check after the folder of the run is created.
def test_invalid_engine_settings_are_refused_before_a_folder_is_created(settings, server, tmp_path, cli, monkeypatch):
    def refused(words, method="grpo", **given):
        with pytest.raises(UserError, match=words):
            getattr(llm, method)(**{**settings(method), **given})
        assert not (tmp_path / "runs").exists()

    for address in ("vllm", "localhost:8000", "ftp://a:1", "http://", "http://a/v1", "file:///etc/passwd",
                    "http://a:99999", "http://a:0", "http://a..b:80"):
        refused("--engine must be own, or the address of a server, as in http://localhost:8000", engine=address)
    refused("does not answer .*; start a vLLM server there first", engine="http://127.0.0.1:9")
    refused("with one process that learns; leave out --workers", lag=1, workers=2)
    refused("--lag must be from 0 to 1, not 2", lag=2)
    refused("--max-weight limits importance weights, which are 1 here; add --lag 1 or --engine", max_weight=7.0)
    refused("--engine-timeout is for a server; add --engine", engine_timeout=3.0)
    server.limit = 5
    refused(r"reads at most 5 tokens, and .* has up to \d+; start it with --max-model-len", engine=server.address)
    server.limit, server.dev = 512, False
    refused("cannot reload weights", engine=server.address, model="")      # before SFT
    refused("cannot reload weights, so it can be a judge or be evaluated, but not be trained; start it with "
            "VLLM_SERVER_DEV_MODE=1", engine=server.address)
    refused("answers within a response", lag=1, task="calculator", reward="", model="")
    for method in ("sft", "dpo", "best_of_n", "es"):
        done = cli("llm", method, "--lag", 1)
        assert done.code == 2 and re.search(rf"{method} has no flag --lag", done.err), done.err


# Catches: an answer that is read beyond the size limit; a proxy from the environment variables; a redirection that is
# followed.
def test_client_ignores_proxies_and_redirections_and_limits_the_answer(server, beginner, monkeypatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    start = load_model(beginner)
    asked = Server(server.address, start.model, start.tokenizer, 5)
    asked.check(20)
    server.broken = lambda path, body: (302, b"")
    with pytest.raises(EngineError, match="answered 302"):
        asked.submit([start.tokenizer.prompt("ab>")], 2, 5, 1, 1.0)()
    server.broken = None
    monkeypatch.setattr(engine, "LARGEST", 20)
    with pytest.raises(EngineError, match="sent a wrong answer"):
        asked.submit([start.tokenizer.prompt("ab>")], 2, 5, 1, 1.0)()
    asked.close()


# Catches: importance weights per token for GSPO, whose ratio is per response; weights per response for a ratio per
# token.
@pytest.mark.parametrize("loss", ["clip", "sequence"])
def test_importance_weights_are_per_response_for_gspo_only(loss, settings, fork_workers, monkeypatch):
    widths = []

    def watched(*args, **given):
        found = importance_weights(*args, **given)
        if torch.is_tensor(found):
            widths.append(found.shape[1])
        return found

    monkeypatch.setattr(grpo, "importance_weights", watched)
    llm.grpo(**settings(loss=loss, lag=1, total_steps=2))
    assert widths and (set(widths) == {1}) == (loss == "sequence")
