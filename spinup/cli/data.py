"""The command that records offline datasets."""
from functools import partial
from pathlib import Path

from spinup.parser import Parser, path_of

HELP = """\
Offline data:
  spinup record DIR... [--noise 0 0.3 1]          record a dataset from trained policies, for offline algorithms
"""


def record(argv: list[str]) -> int:
    from spinup.runs.config import Unit
    from spinup.runs.convert import parse
    from spinup.runs.flags import Distinct, whole
    parser = Parser("spinup record", "Record a dataset of whole episodes, for algorithms that learn offline. The "
                                     "policy of each run is recorded once for each value of --noise.")
    parser.add_argument("sources", nargs="*", default=[], metavar="DIR",
                        help="folders of runs, or shelf/NAME; random:CartPole-v1 for random actions; "
                             "replay:DIR for the replay buffer of an interrupted run")
    parser.add_argument("--steps", type=whole("steps"), default=10_000, metavar="N",
                        help="transitions per policy and noise value; the last episode is completed, so there may be "
                             "more. [10000]")
    parser.add_argument("--noise", type=partial(parse, "noise", Unit), nargs="+", action=Distinct, default=[0.0],
                        metavar="P", help="probability of a random action at each step; with several values, the "
                                          "dataset has mixed quality. [0]")
    parser.add_argument("--stochastic", action="store_true", default=False,
                        help="sample the policy's actions, as in training")
    parser.add_argument("--seed", type=whole("seed", 0), default=1, metavar="S",
                        help="seed of the episodes and the actions. [1]")
    parser.add_argument("--out", type=path_of, default=Path("dataset.npz"), metavar="FILE",
                        help="file to write. [dataset.npz]")
    parser.add_argument("--card", type=path_of, default=None, metavar="FILE",
                        help="describe a recorded dataset instead of recording one")
    args = parser.parse(argv)
    if args.card is not None:
        from spinup.data.card import card
        from spinup.data.dataset import load
        print(card(load(args.card)))
        return 0
    if not args.sources:
        parser.error("give the folder of a run, such as runs/NAME/NAME_s1, or random:CartPole-v1")
    from spinup.runs.display import quoted
    from spinup.view.record import record as record_all
    print(record_all(args.sources, args.out, steps=args.steps, noise=args.noise, stochastic=args.stochastic,
                     seed=args.seed))
    print(f"written to {args.out}; `spinup record --card {quoted(str(args.out))}` shows this again")
    return 0


COMMANDS = {"record": record}
