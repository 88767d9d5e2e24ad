"""Do the tests notice? Changes one place of the package at a time and runs the tests nearest to it.

The changes (of an operator, number, condition, loop, exception or decorator) are Cosmic Ray's. This file draws a
seeded sample of places, one change for each, and tests it in a fork of a process that has imported torch already. What
does not compile is not drawn, nor what changes only annotations, arguments of decorators, how an argument may be
passed, `is` to `==`, whether zip is strict, or a decorator that saves time or memory alone (a cache, no_grad) or is
there for type checkers.
A mutant is killed where a test fails, its module cannot be imported, or the tests need far more time than without it.
The survivors and the table end up in .benchmarks/mutants.md.

The nearest tests of federation/codec.py are tests/federation/test_codec*.py and all in that folder that import it;
where it has none, those of the modules that import it. Of methods/fedlog/step.py they are also test_fedlog.py and what
the tests of every method say of fedlog, of federation what these say of fedavg. A survivor may be noticed elsewhere:
the score is a lower bound.
"""

from __future__ import annotations

import argparse
import ast
import collections
import contextlib
import difflib
import importlib
import os
import random
import re
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cosmic_ray import mutating, plugins
from cosmic_ray.ast import ast_nodes, get_ast

CHECKOUT = Path(__file__).resolve().parents[1]
PACKAGE = CHECKOUT / "src" / "graphsilo"
TESTS = CHECKOUT / "tests"
PACKAGES = ("evaluate", "federation", "methods")
EVERY_METHOD = (
    "test_messages.py",
    "test_settings.py",
    "test_conformance.py",
    "test_every_setting.py",
    "test_every_backbone.py",
    "test_bytes.py",
)
UNNOTICED = {"cache", "no_grad", "dataclass_transform"}
"""Decorators without which nothing is different but time, memory or what a type checker says."""
COSTLY_IMPORTS = ("numpy", "scipy.sparse", "sklearn.metrics", "torch", "torch_geometric", "pydantic", "hypothesis")
NOTHING_FOUND = 5
"""What pytest ends with where no test is selected."""
SAME: dict[type[ast.cmpop], type[ast.cmpop]] = {ast.Is: ast.Eq, ast.IsNot: ast.NotEq}
OPERATORS = {name: plugins.get_operator(name) for name in plugins.operator_names()}


def modules_of(name: str) -> list[Path]:
    path = PACKAGE / name
    found = sorted(path.rglob("*.py")) if path.is_dir() else [path.with_suffix(".py")]
    if not found or not found[0].is_file():
        raise SystemExit(
            f"--module wants a folder or a module of the package, as federation or federation/codec: {name}"
        )
    return [file for file in found if file.name != "__init__.py" or file.parent.parent == PACKAGE / "methods"]


def nearest_tests(module: Path) -> list[list[str]]:
    """Arguments of pytest, for one call after the other."""
    parts = [part for part in module.relative_to(PACKAGE).with_suffix("").parts if part != "__init__"]
    room, stem = parts[0], parts[-1]
    name = parts[1].rstrip("_") if room == "methods" else stem
    place = ".".join(parts[:-1])
    imports = re.compile(rf"graphsilo\.{'.'.join(parts)}\b|from graphsilo\.{place} import [^\n]*\b{stem}\b")

    def tests_of(*names: str) -> set[Path]:
        return {file for start in names for file in (TESTS / room).rglob(f"test_{start}*.py")}

    near = tests_of(stem, name)
    near = {file for file in near if len(parts) < 3 or parts[1] in file.parts or parts[1] in file.stem} or near
    if not near:
        near = tests_of(*(file.stem for file in module.parent.glob("*.py") if imports.search(file.read_text())))
    near |= {file for file in (TESTS / room).rglob("test_*.py") if imports.search(file.read_text())}
    calls = [[str(file) for file in sorted(near, key=lambda file: (stem not in file.stem, file))]]
    if room != "evaluate":
        name = name if room == "methods" else "fedavg"
        files = [*EVERY_METHOD, *(["test_fedavg.py"] if room == "federation" else [])]
        about = f"test_{name} or [{name}- or [{name}]"
        calls.append(["-k", about, *(str(TESTS / "methods" / file) for file in files)])
    return [call for call in calls if call]


def meaning(source: str) -> str:
    """What a module does: its syntax tree without what is not drawn."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        for field in {"annotation", "returns"} & set(node._fields):
            setattr(node, field, None)
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            node.decorator_list = [each.func if isinstance(each, ast.Call) else each for each in node.decorator_list]
            names = [getattr(each, "attr", getattr(each, "id", "")) for each in node.decorator_list]
            checked = any(name.endswith("_validator") for name in names)  # pydantic makes a class method of it
            unnoticed = UNNOTICED | ({"classmethod"} if checked else set())
            pairs = zip(node.decorator_list, names, strict=True)
            node.decorator_list = [each for each, name in pairs if name not in unnoticed]
        if isinstance(node, ast.Call):
            node.keywords = [each for each in node.keywords if each.arg != "strict"]
        if isinstance(node, ast.Compare):
            node.ops = [SAME.get(type(each), type(each))() for each in node.ops]
        if isinstance(node, ast.arguments):
            node.args, node.posonlyargs, node.kwonlyargs = [*node.posonlyargs, *node.args, *node.kwonlyargs], [], []
            node.defaults, node.kw_defaults = [each for each in (*node.defaults, *node.kw_defaults) if each], []
    return ast.dump(tree)


def places(source: str) -> list[list[tuple[str, int]]]:
    """Every place of a module that can be changed, as its possible changes: operator and occurrence."""
    nodes = list(ast_nodes(get_ast(source)))
    found: dict[Any, list[tuple[str, int]]] = collections.defaultdict(list)
    for name, operator in OPERATORS.items():
        if not operator.arguments():  # those with arguments name the variables of one program
            for occurrence, where in enumerate(at for node in nodes for at in operator().mutation_positions(node)):
                found[where].append((name, occurrence))
    return [found[where] for where in sorted(found)]


def drawn(modules: list[Path], seed: int) -> Iterator[tuple[Path, str]]:
    """Modules and their mutated source, in random order."""
    draw = random.Random(seed)
    order = [(module, changes) for module in modules for changes in places(module.read_text())]
    draw.shuffle(order)
    for module, changes in order:
        source = module.read_text()
        for name, occurrence in draw.sample(changes, len(changes)):
            with contextlib.suppress(SyntaxError):
                mutant = mutating.mutate_code(source, OPERATORS[name](), occurrence)
                if meaning(mutant) != meaning(source):
                    yield module, mutant
                    break


def seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def passes(tests: list[list[str]], cpu_seconds: float) -> bool:
    """Run tests in a fork."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.setsid()
            resource.setrlimit(resource.RLIMIT_CPU, (int(cpu_seconds), int(cpu_seconds)))
            for stream in (1, 2):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
            main = importlib.import_module("pytest").main
            status = int(any(main(["-x", "-n0", "-m", "not slow", *call]) not in (0, NOTHING_FOUND) for call in tests))
        finally:
            os._exit(status)
    deadline = time.monotonic() + 20 * cpu_seconds  # the processor may be shared; a mutant may wait for ever
    ended = 0, 0
    try:
        while ended[0] == 0 and time.monotonic() < deadline:
            time.sleep(0.05)
            ended = os.waitpid(child, os.WNOHANG)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)  # whatever the tests started, too
        if ended[0] == 0:
            os.waitpid(child, 0)
    return ended[0] != 0 and os.waitstatus_to_exitcode(ended[1]) == 0


def tried(copy: Path, options: argparse.Namespace) -> Iterator[tuple[str, str, bool]]:
    """Label, diff, and whether it was killed, of each mutant of the sample."""
    limits: dict[tuple[str, ...], float] = {}
    modules = [module for name in options.module or PACKAGES for module in modules_of(name)]
    for number, (module, mutant) in enumerate(drawn(modules, options.seed), 1):
        label, tests, source = str(module.relative_to(PACKAGE)), nearest_tests(module), module.read_text()
        all_tests, start = tuple(sorted({name for call in tests for name in call})), seconds()
        if all_tests not in limits and not passes(tests, 600):
            raise SystemExit(f"the tests of {label} fail before anything is changed: {' '.join(all_tests)}")
        limits.setdefault(all_tests, 10 + 3 * (seconds() - start))
        (copy / label).write_text(mutant)
        os.utime(copy / label, (number, number))  # its own time: cached bytecode of another mutant never fits
        killed = not passes(tests, limits[all_tests])
        shutil.copy2(module, copy / label)
        lines = source.splitlines(), mutant.splitlines()
        yield label, "\n".join(difflib.unified_diff(*lines, f"a/{label}", f"b/{label}", lineterm="", n=1)), killed
        if number == options.sample or seconds() > 60 * options.cpu_minutes:
            return


def main() -> None:
    parser = argparse.ArgumentParser(description="Change one place of the package at a time and run the nearest tests.")
    parser.add_argument("--module", action="append", help=f"folder or module, may be repeated ({', '.join(PACKAGES)})")
    parser.add_argument("--sample", type=int, default=100, help="number of mutants; 0: one for every place (100)")
    parser.add_argument("--seed", type=int, default=0, help="of the sample (0)")
    parser.add_argument("--cpu-minutes", type=float, default=float("inf"), help="end after so many")
    options = parser.parse_args()
    os.chdir(CHECKOUT)
    outcomes: dict[str, list[bool]] = collections.defaultdict(list)
    survivors = []
    with tempfile.TemporaryDirectory() as folder, contextlib.suppress(KeyboardInterrupt):
        copy = shutil.copytree(PACKAGE, Path(folder, "graphsilo"))
        sys.path.insert(0, folder)
        os.environ.update(PYTHONPATH=folder, OMP_NUM_THREADS="1")
        for name in COSTLY_IMPORTS:
            importlib.import_module(name)
        for label, diff, killed in tried(copy, options):
            outcomes[label].append(killed)
            survivors += [] if killed else [f"\n```diff\n{diff}\n```"]
            print(f"{'killed' if killed else 'SURVIVED'}\n{diff}\n", flush=True)
    rows = [*sorted(outcomes.items()), ("all", [killed for each in outcomes.values() for killed in each])]
    text = ["| module | mutants | killed | survived | score |", "|---|---:|---:|---:|---:|"]
    text += [f"| {k} | {len(v)} | {sum(v)} | {len(v) - sum(v)} | {sum(v) / max(1, len(v)):.0%} |" for k, v in rows]
    text += [f"\nSeed {options.seed}, {seconds() / 60:.1f} CPU minutes of tests.", *survivors]
    report = CHECKOUT / ".benchmarks" / "mutants.md"
    report.parent.mkdir(exist_ok=True)
    report.write_text("\n".join(text) + "\n")
    print(*text, sep="\n")


if __name__ == "__main__":
    main()
