"""Tests of GPU code on the CPU: fake devices, recorded steps, and the number of times the code waits for a GPU."""
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace

import pytest
import torch

import spinup
from llm.policy import generate, score
from llm.policy.generate import Insertions, Prompts, Sampler
from llm.policy.scalar import RewardModel, ScalarModel
from llm.policy.score import forward_kl
from llm.policy.shape import Shape
from llm.policy.transformer import Transformer, attend
from llm.tasks import sandbox
from spinup.runs.run import Run

GROUPED = Shape(12, 200, 2, 32, 4, 2, 8, 48)


@pytest.fixture
def model() -> Transformer:
    torch.manual_seed(0)
    return Transformer(GROUPED)


def ids(rows: int, length: int) -> torch.Tensor:
    return torch.randint(1, 12, (rows, length), generator=torch.Generator().manual_seed(rows))


# Catches: heads that use the key of another head; the mask of another row; keys that are repeated in the wrong order.
@pytest.mark.parametrize("T", [1, 5])
def test_masked_attention_equals_grouped_query_attention_of_torch(T):
    q, k, v = (torch.randn(3, h, n, 8, requires_grad=True) for h, n in ((6, T), (2, 9), (2, 9)))
    mask = torch.rand(3, 1, T, 9) < 0.6
    mask[..., 0] = True
    found, wanted = (attend(q, k, v, mask, grouped) for grouped in (False, True))
    torch.testing.assert_close(found, wanted)
    gradients = [torch.autograd.grad(y.square().sum(), (q, k, v)) for y in (found, wanted)]
    torch.testing.assert_close(*gradients)


# Catches: logits that are split only by rows, so that those of one long response are never split; entropies of other
# tokens; a KL divergence whose reference policy gets a gradient.
def test_logits_of_one_long_response_are_split(model, monkeypatch):
    prompts, of, said = Prompts.of([[1, 2], [3]]), torch.tensor([0, 1]), ids(2, 40)
    reference = Transformer(GROUPED)

    def both():
        logp, entropy = score.score(model, prompts, of, said)
        divergence = forward_kl(model, reference, prompts, of, said)
        (logp.sum() + divergence.sum()).backward()
        found = [logp.detach(), entropy, divergence.detach(), *(p.grad.clone() for p in model.parameters())]
        model.zero_grad()
        return found
    wanted, sizes, logits = both(), [], Transformer.logits
    monkeypatch.setattr(score, "CHUNK", 12 * 10)
    monkeypatch.setattr(Transformer, "logits", lambda self, x: sizes.append(x[..., 0].numel()) or logits(self, x))
    for one, other in zip(both(), wanted, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)
    assert max(sizes) <= 10 and all(p.grad is None for p in reference.parameters())


# Catches: a graph for each length of prompt and response; a cache that is longer than the context, whose last position
# has no rotation; a graph that is recorded again after the weights have changed in place.
def test_sampler_records_one_step_per_rounded_cache_length(model, recorded):
    sampler, generator = Sampler(model, end=-1), torch.Generator().manual_seed(1)
    for length in range(1, 60, 7):
        found = sampler(Prompts.of(ids(2, 4).tolist()), max_tokens=length, generator=generator)
        with torch.no_grad():
            model.embed.weight.mul_(1.01)
        logp, _ = score.score(model, Prompts.of(ids(2, 4).tolist()), found.of, found.ids)
        assert logp.shape == found.logp.shape
    assert recorded == [64]
    sampler(Prompts.of(ids(2, 150).tolist()), max_tokens=45, generator=generator)
    assert recorded == [64, 200]


# Catches: a stream or a graph on the current device although the model is on another device; a pool for each graph.
def test_step_is_recorded_on_the_device_of_its_model(monkeypatch):
    current, pools, streams = [torch.device("cuda", 0)], [], []

    @contextmanager
    def device(where):
        current.append(where)
        yield
        current.pop()

    class Stream:
        def __init__(self):
            assert current[-1].index == 1

        def wait_stream(self, other):
            assert current[-1].index == 1

    class Graph(Stream):
        def pool(self):
            return "shared"

        def replay(self):
            pass

    def graph(graph, pool, stream):
        pools.append(pool)
        streams.append(stream)
        assert current[-1].index == 1
        return nullcontext()
    monkeypatch.setattr(generate.torch, "cuda", SimpleNamespace(
        device=device, Stream=Stream, current_stream=Stream, stream=lambda side: nullcontext(), CUDAGraph=Graph,
        graph=graph))
    memory = SimpleNamespace(device=torch.device("cuda", 1))
    for name in ("zeros", "full_like"):                                   # this machine has no such device
        monkeypatch.setattr(generate.torch, name, lambda *_, **__: torch.tensor([0, 0]))
    pool: list = []
    for _ in range(2):
        generate.record(lambda token, position: token, SimpleNamespace(memory=[(memory, memory)], rows=2, length=5),
                        pool)
    assert pools == [None, "shared"] and pool[0] == "shared" and current == [torch.device("cuda", 0)]
    assert streams == [pool[1]] * 2                           # of this GPU; torch's default is of the first GPU


# Catches: separate reads of the tokens, the rows and the unfinished rows from the GPU.
def test_tools_wait_for_the_gpu_once_per_token(monkeypatch):
    insert, waits, tolist = Insertions(lambda tokens: [7] if tokens[-1] == 3 else None, 3), [], torch.Tensor.tolist
    monkeypatch.setattr(torch.Tensor, "tolist", lambda x: waits.append(1) or tolist(x))
    rows, alive = torch.arange(3), torch.tensor([True, True, False])
    first, mine = insert(torch.tensor([3, 4, 3]), rows, alive)
    second, then = insert(torch.tensor([5, 5, 5]), rows, alive)
    assert len(waits) == 2
    assert torch.equal(first, torch.tensor([3, 4, 3])) and torch.equal(mine, alive) and mine.dtype == torch.bool
    assert torch.equal(second, torch.tensor([7, 5, 5])) and torch.equal(then, torch.tensor([False, True, False]))


# Catches: a reward model that stays on the device where it was loaded; a number of responses per pass that changes
# although the run does not set it.
def test_reward_model_moves_to_the_device_of_the_run(model):
    judge = RewardModel(ScalarModel(model), None)
    before = judge.at_once
    judge.serve(torch.device("meta"), 0)
    assert {p.device.type for p in judge.model.parameters()} == {"meta"} and judge.at_once == before
    judge.serve(torch.device("meta"), 4)
    assert judge.at_once == 4


# Catches: a policy that is loaded on the CPU for every --device; a --device that is not checked.
@pytest.mark.parametrize("words", ["eval {}", "watch {}", "llm eval {} --task reverse:length=2,symbols=10",
                                   "llm chat {}"])
def test_commands_load_the_policy_on_the_given_device(words, beginner, cli, monkeypatch):
    done = cli(*words.format(beginner).split(), "--device", "cuda:99")
    assert done.code == 2 and "there is no device 'cuda:99' here" in done.err
    asked = []
    monkeypatch.setattr("llm.restore.find_device", lambda *given: asked.append(given) or torch.device("cpu"))
    monkeypatch.setattr("builtins.input", lambda *_: "")
    extra = [] if "chat" in words else ["--episodes", 2]
    assert cli(*words.format(beginner).split(), "--device", "cuda:1", *extra).code == 0
    assert asked == [("cuda:1", True)]


def test_eval_loads_an_agent_on_the_given_device(cli, tmp_path, monkeypatch):
    run = spinup.ppo("CartPole-v1", preset="none", total_steps=256, num_envs=2, rollout_steps=32, tensorboard=False,
                     quiet=True, log_dir=str(tmp_path)).directory
    assert "there is no device 'cuda:99' here" in cli("eval", run, "--device", "cuda:99").err
    asked = []
    monkeypatch.setattr("spinup.family.find_device", lambda name, gpu_helps: asked.append((name, gpu_helps)) or "cpu")
    assert cli("eval", run, "--episodes", 2, "--device", "cuda").code == 0
    assert asked == [("cuda", False)]


# Catches: the random states of all GPUs, which a machine with fewer GPUs cannot restore.
def test_checkpoint_holds_the_random_state_of_its_own_gpu(tmp_path, monkeypatch):
    asked, save, cuda = [], Run.save, torch.device("cuda", 1)

    def on_cuda(run):
        run.device = cuda
        save(run)
        run.device = torch.device("cpu")
    monkeypatch.setattr(Run, "save", on_cuda)
    monkeypatch.setattr(torch.cuda, "get_rng_state", lambda device: asked.append(device) or torch.arange(4))
    monkeypatch.setattr(torch.cuda, "set_rng_state", lambda state, device: asked.append((device, state.tolist())))
    spinup.ppo("CartPole-v1", preset="none", total_steps=128, num_envs=2, rollout_steps=64, tensorboard=False,
               quiet=True, log_dir=str(tmp_path))
    assert asked and asked == [cuda, (cuda, [0, 1, 2, 3])] * (len(asked) // 2)


# Catches: only two answers at a time on a machine with sixteen cores.
def test_sandbox_uses_all_cores_by_default(monkeypatch):
    pools = []
    monkeypatch.setattr(sandbox, "cores", lambda: 16)
    monkeypatch.setattr(sandbox, "warn", lambda: None)
    monkeypatch.setattr(sandbox, "ThreadPoolExecutor", lambda n: pools.append(n) or nullcontext(
        SimpleNamespace(map=lambda function, jobs: jobs)))
    sandbox.judge_many([])
    assert pools == [16]
