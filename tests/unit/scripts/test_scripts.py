"""The scripts behind make: groups that cut all tests, stamps, counts; pins without addresses."""

from __future__ import annotations

import ast
import itertools
import re
import sys
import threading
from pathlib import Path
from types import ModuleType

import pytest

from kit.scripts import ROOT, script
from simulation.run import first_of_commit

REQUIREMENTS = sorted((ROOT / "requirements").glob("*.txt"))


@pytest.fixture
def run_tests(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    return script("run_tests")


def test_every_test_is_in_exactly_one_group_whatever_its_markers(run_tests: ModuleType) -> None:
    kinds = ("alone", "kafka4", "kafka3", "spark", "browser", "simulated")
    marks = (*kinds, "short", "slow")
    for slow in (False, True):
        expressions = {g: run_tests.expression(g, slow=slow) for g in run_tests.GROUPS}
        for worn in itertools.product((False, True), repeat=len(marks)):
            test = dict(zip(marks, worn, strict=True))
            if test["short"] and not any(test[kind] for kind in kinds):
                continue  # tests/conftest.py refuses that
            # Marker expressions are Python's own and, or, not.
            chosen = [group for group, text in expressions.items() if eval(text, {}, test)]
            assert len(chosen) == (1 if slow or not test["slow"] else 0), (test, chosen)


def test_markers_of_pytest_and_groups_agree(
    run_tests: ModuleType, pytestconfig: pytest.Config
) -> None:
    declared = {str(line).partition(":")[0] for line in pytestconfig.getini("markers")}
    assert {*run_tests.KINDS, "short", "slow"} <= declared
    assert set(run_tests.GROUPS) == {"short", "fast", *run_tests.KINDS}


def test_each_group_of_servers_looks_where_its_tests_are_held_to(
    run_tests: ModuleType, pytestconfig: pytest.Config
) -> None:
    conftest = pytestconfig.pluginmanager.get_plugin(str(ROOT / "conftest.py"))
    assert conftest is not None
    assert conftest._PLACES == run_tests.PLACES


@pytest.mark.parametrize("folder", ["bench", "lab/fuzzing"])
def test_every_program_runs_with_its_defaults_or_is_a_part_of_others(folder: str) -> None:
    run_each = script("run_each")
    programs = {
        str(path.relative_to(ROOT)): ast.parse(path.read_text(encoding="utf-8"))
        for path in (ROOT / folder).rglob("*.py")
        if run_each.MAIN in path.read_text(encoding="utf-8")
    }
    assert programs
    for name, tree in programs.items():
        asked = [
            ast.unparse(node)
            for node in ast.walk(tree)
            if isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "add_argument"
            and isinstance(first := node.args[0], ast.Constant)
            and (
                (
                    not str(first.value).startswith("-")
                    and not any(word.arg == "nargs" for word in node.keywords)
                )
                or any(word.arg == "required" for word in node.keywords)
            )
        ]
        assert not asked or name in run_each.PARTS, f"{name} needs {asked}"
    parts = {name for name in run_each.PARTS if name.startswith(folder)}
    assert parts <= set(programs)
    assert {name for name in run_each.ARGUMENTS if name.startswith(folder)} <= set(programs)


def test_log_dirs_are_left_out_only_in_a_chroot_without_a_mount(
    run_tests: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert "mount" not in run_tests.expression("kafka4", slow=False)
    assert run_tests.expression("kafka4", slow=False, mounted=False).count("not mount") == 1
    mounts = tmp_path / "mounts"
    monkeypatch.setattr(run_tests, "Path", lambda _: mounts)
    monkeypatch.delenv("CI", raising=False)
    for text, mounted in (("proc /proc proc rw 0 0\n", False), ("/dev/vda / ext4 rw 0 0\n", True)):
        mounts.write_text(text)
        assert run_tests.root_is_mounted() == mounted
    mounts.write_text("")
    monkeypatch.setenv("CI", "true")  # which fails rather than leaving a test out
    assert run_tests.root_is_mounted()


def test_one_closing_line_sums_all_groups(run_tests: ModuleType) -> None:
    fast = run_tests.Result("fast", 10, 0, 0, 0, 61.5, 90.0, 0)
    spark = run_tests.Result("spark", 5, 1, 0, 0, 10.0, 8.0, 1)
    line = run_tests.closing_line([fast, spark], 71.5)
    assert line.strip("=") == " 1 failed, 15 passed in 71.50s (0:01:11) "
    assert [run_tests.good(result) for result in (fast, spark)] == [True, False]


@pytest.mark.parametrize(
    "counts", [{"failed": 1}, {"errors": 1}, {"skipped": 1}, {"exit_code": 2}], ids=str
)
def test_a_group_with_anything_left_out_is_not_good(
    run_tests: ModuleType, counts: dict[str, int]
) -> None:
    passed = run_tests.Result("fast", 10, 0, 0, 0, 1.0, 1.0, 0)
    assert run_tests.good(passed)
    assert not run_tests.good(passed._replace(**counts))


@pytest.mark.parametrize(
    ("arguments", "groups"),
    [
        ([], ["short", "fast"]),
        (["rest"], ["spark", "kafka4", "kafka3", "browser", "simulated", "alone"]),
        (["kafka3"], ["kafka3"]),
        (
            ["--all"],
            ["spark", "kafka4", "short", "fast", "kafka3", "browser", "simulated", "alone"],
        ),
    ],
    ids=str,
)
def test_everyday_and_rest_are_all_groups(
    run_tests: ModuleType, monkeypatch: pytest.MonkeyPatch, arguments: list[str], groups: list[str]
) -> None:
    asked: list[str] = []

    def run_all(names: list[str], **_: object) -> list[object]:
        asked.extend(name for name in names if name not in run_tests.PROGRAMS)
        return []

    monkeypatch.setattr(run_tests, "run_all", run_all)
    monkeypatch.setattr(run_tests, "record", lambda *_: None)
    monkeypatch.setattr(run_tests.chromium, "main", lambda: 1)
    monkeypatch.setattr(run_tests.prometheus, "main", lambda: 1)
    monkeypatch.setattr(sys, "argv", ["run_tests.py", *arguments])
    assert run_tests.main() == 1  # no test ran
    assert asked == groups


def test_a_run_without_a_test_fails(
    run_tests: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    none = run_tests.Result("fast", 0, 0, 0, 0, 1.0, 1.0, 0)
    monkeypatch.setattr(run_tests, "run_all", lambda *_, **__: [none])
    monkeypatch.setattr(sys, "argv", ["run_tests.py", "fast", "-k", "nothing"])
    assert run_tests.main() == 1
    assert "no test ran" in capsys.readouterr().out
    monkeypatch.setattr(run_tests, "run_all", lambda *_, **__: [none, none._replace(passed=1)])
    assert run_tests.main() == 0


def test_groups_run_side_by_side_and_alone_runs_last(
    run_tests: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    beside = threading.Barrier(run_tests.LANES, timeout=60)
    ended: list[str] = []

    def run(group: str, **_: object) -> str:
        if group in ("kafka4", "fast"):
            beside.wait()  # each waits for the other
        ended.append(group)
        return group

    monkeypatch.setattr(run_tests, "run", run)
    groups = list(run_tests.GROUPS)
    assert run_tests.run_all(groups, slow=False, order=[], more=[]) == groups
    assert ended[-1] == "alone"
    assert sorted(ended) == sorted(groups)
    assert run_tests.run_all(["fast"] * 2, slow=False, order=[], more=[]) == ["fast"] * 2


def test_every_test_has_a_limit_of_its_own(request: pytest.FixtureRequest) -> None:
    limits = [item.get_closest_marker("timeout") for item in request.session.items]
    assert limits
    assert all(limit is not None and limit.args[0] > 0 for limit in limits)


def test_the_table_of_what_runs_where_has_every_group_and_stage(run_tests: ModuleType) -> None:
    table = (ROOT / "scripts" / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([\w./ -]+)` \|", table, flags=re.M)
    stages = re.findall(r"stage (\w+) make", (ROOT / ".ci" / "run").read_text(encoding="utf-8"))
    assert {*run_tests.GROUPS, *stages} <= set(rows)


def test_a_step_is_done_once_for_a_key_and_again_when_it_changes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    setup = script("setup")
    monkeypatch.setattr(setup, "STAMPS", tmp_path / "stamps")
    done: list[str] = []
    for key in ("a", "a", "b"):
        setup.step("x", key, lambda key=key: done.append(key))
    assert done == ["a", "b"]


def test_a_step_that_fails_leaves_no_stamp(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    setup = script("setup")
    monkeypatch.setattr(setup, "STAMPS", tmp_path)
    (tmp_path / "x").write_text("old")

    def fail() -> None:
        raise SystemExit(1)

    with pytest.raises(SystemExit):
        setup.step("x", "new", fail)
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize(
    ("said", "way_out"),
    [
        ("ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE", "who serves"),
        ("SSLError(SSLCertVerificationError(1, '[SSL: CERTIFICATE_VERIFY_FAILED]", "PIP_CERT"),
        ("NewConnectionError: [Errno -3] Temporary failure in name resolution", "HTTPS_PROXY"),
        ("error: command 'cc' failed: No such file", "install gcc"),
    ],
)
def test_what_pip_complains_about_has_a_way_out(said: str, way_out: str) -> None:
    assert way_out in script("setup").hint(said)


@pytest.mark.parametrize("path", REQUIREMENTS, ids=lambda path: path.name)
def test_pins_have_hashes_and_record_no_address(path: Path) -> None:
    text = path.read_text()
    assert "://" not in text
    assert not re.search(r"^\s*--(index|extra-index|find-links|trusted)", text, re.MULTILINE)
    blocks = re.split(r"^(?=\S)", text, flags=re.MULTILINE)
    pins = [block for block in blocks if block.strip() and not block.startswith("#")]
    assert pins
    for pin in pins:
        assert re.match(r"[A-Za-z0-9._-]+==\S+", pin), pin
        assert re.search(r"--hash=sha256:[0-9a-f]{64}", pin), pin


@pytest.mark.parametrize("name", ["build", "dev", "pins", "package"])
def test_everything_asked_for_is_pinned(name: str) -> None:
    folder = ROOT / "requirements"
    text = (folder / f"{name}.in").read_text()
    lines = (line.partition("#")[0].strip() for line in text.splitlines())
    wanted = {re.split(r"[<=>\[;! ]", line)[0].lower() for line in lines if line[:1].isalnum()}
    pinned = set(re.findall(r"^([A-Za-z0-9._-]+)==", (folder / f"{name}.txt").read_text(), re.M))
    assert wanted <= {pin.lower() for pin in pinned}


def test_a_program_of_make_test_all_counts_as_one_test_and_says_how_it_failed(
    run_tests: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert all((ROOT / path).is_file() for path, *_ in run_tests.PROGRAMS.values())
    lines = {"good": "print('all well')", "bad": "print('no wheel'); raise SystemExit(3)"}
    monkeypatch.setattr(run_tests, "PROGRAMS", {name: ("-c", line) for name, line in lines.items()})
    good, bad = map(run_tests.run_program, ("good", "bad"))
    assert run_tests.good(good)
    assert (good.passed, good.failed) == (1, 0)
    assert not run_tests.good(bad)
    assert (bad.passed, bad.failed, bad.exit_code) == (0, 1, 3)
    assert "no wheel" in bad.bad[0]


def test_where_there_is_no_git_the_commit_is_not_known_and_the_run_goes_on(
    run_tests: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert run_tests.commit_now() != ""
    known = first_of_commit()
    monkeypatch.setenv("PATH", str(tmp_path))
    assert run_tests.commit_now() == "unknown"
    assert first_of_commit() == first_of_commit() != known
    assert "apt-get install git" in run_tests.NO_GIT
