"""Arguments and output of the commands of `spinup exercise`."""
import json
from typing import Any

from rich.console import Console
from rich.text import Text

from spinup.parser import Parser

CURRENT = "the last started that you have not passed since"


class Say:
    """Printer of text for people, or of JSON lines."""

    def __init__(self, as_json: bool):
        self.console, self.as_json = Console(highlight=False), as_json

    def __call__(self, text: str | Text = "", style: str = "") -> None:
        if not self.as_json:
            self.console.print(text if isinstance(text, Text) else Text(text, style),
                               soft_wrap=not self.console.is_terminal)

    def data(self, **what: Any) -> None:
        """Print a line of JSON if the user asked for JSON."""
        if self.as_json:
            print(json.dumps(what), flush=True)


def with_id(parser: Parser, default: str = CURRENT) -> Parser:
    """Add the argument that names an exercise. default: which exercise a command takes without it, in words."""
    parser.add_argument("id", nargs="?", default="", metavar="ID", help=f"such as 2.1. [{default}]")
    return parser


def parsed(parser: Parser, argv: list[str]) -> tuple[Any, Say]:
    """Parse the arguments; return them and a printer. UserError for an unknown flag."""
    parser.add_argument("--json", action="store_true", default=False, help="print a line of JSON instead of text")
    args = parser.parse(argv)
    return args, Say(args.json)
