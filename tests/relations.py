"""Relations between algorithms: those in one file, and the ancestors of one."""
from spinup.registry import Algorithm, algorithms, find


def in_module(module: str, family: str = "") -> dict[str, Algorithm]:
    """The algorithm of a family in a module, and its variants, by method."""
    return {method: algorithm for method, algorithm in algorithms(family).items() if algorithm.module == module}


def ancestors(algorithm: Algorithm) -> list[str]:
    """Names of its parents, their parents, and so on."""
    found: list[str] = []
    coming = list(algorithm.parents)
    while coming:
        name = coming.pop(0)
        if name not in found:
            found.append(name)
            coming += find(name).parents
    return found
