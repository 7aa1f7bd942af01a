"""Choices of algorithms in a file: they come back, other processes' stay, and a bad file is an error."""

import dataclasses
import json
import multiprocessing
import os
from pathlib import Path

import pytest

from pycudnnrnn import RNNSpec, ops
from pycudnnrnn._atomic import locked
from pycudnnrnn.engines.cudnn.algorithms import ALGORITHMS
from pycudnnrnn.engines.cudnn.choices import CACHE_VARIABLE, AlgorithmChoice, AlgorithmTrial, CallKind, ChoiceBook, read
from pycudnnrnn.errors import ArgumentError
from pycudnnrnn.spec import Algorithm, MathType
from tests.helpers.algorithms import SMALL_H, STANDARD, STATIC, gru


def tuned(play, fastest=SMALL_H):
    """A shim on which one choice has been made."""
    played, engine, device = play()
    device.times = {(fastest, "fma"): 1.0}
    gru().prepare(3, 2, device="cuda:0")
    return played, engine, device


def test_a_choice_comes_back_from_a_file_without_measuring(play, tmp_path):
    tuned(play)
    path = tmp_path / "choices.json"
    ops.save_algorithm_choices(path)
    (choice,) = ops.algorithm_choices()
    played, _, device = play()
    assert ops.algorithm_choices() == ()
    assert ops.load_algorithm_choices(path) == (choice,) == ops.algorithm_choices() == ops.algorithm_choices(path)
    assert gru().prepare(3, 2, device="cuda:0").algo == SMALL_H
    assert device.timings == 0
    assert not played.launches
    gru(seed=5).prepare(3, 2, device="cuda:0")
    assert device.timings == 0, "the seed decides nothing"


def test_the_file_named_in_the_environment_is_read_before_and_written_after(play, tmp_path, monkeypatch):
    path = tmp_path / "choices.json"
    monkeypatch.setenv(CACHE_VARIABLE, str(path))
    _, _, first = tuned(play)
    assert first.timings
    _, _, second = play()
    assert gru().prepare(3, 2, device="cuda:0").algo == SMALL_H
    assert second.timings == 0
    gru().prepare(4, 2, device="cuda:0")
    assert second.timings
    assert {choice.kind.T for choice in read(path)} == {3, 4}


def test_nothing_is_written_unless_asked(play, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    tuned(play)
    assert not list(tmp_path.iterdir())


def test_choices_of_another_gpu_or_version_are_not_taken_and_not_lost(play, tmp_path):
    tuned(play)
    path = tmp_path / "choices.json"
    ops.save_algorithm_choices(path)
    content = json.loads(path.read_text())
    other, older = json.loads(json.dumps(content["choices"])), json.loads(json.dumps(content["choices"]))
    other[0]["gpu"], older[0]["cudnn"] = "another GPU", 91300
    path.write_text(json.dumps(content | {"choices": other + older}))
    _, _, device = play()
    assert ops.load_algorithm_choices(path) == ()
    gru().prepare(3, 2, device="cuda:0")
    assert device.timings
    ops.save_algorithm_choices(path)
    assert {(c.kind.gpu, c.kind.cudnn) for c in read(path)} == {
        ("another GPU", 92800), ("host memory", 91300), ("host memory", 92800)
    }  # fmt: skip


def spoilt(content):
    """Files that are not what `save` writes."""
    choice = content["choices"][0]

    def changed(**fields):
        return json.dumps(content | {"choices": [choice | fields]})

    yield ""
    yield "{"
    yield "[]"
    yield "\x00\xff"
    yield "[" * 100_000
    yield json.dumps(content | {"version": 2})
    yield json.dumps(content | {"format": "other"})
    yield json.dumps({key: content[key] for key in ("format", "version")})
    yield json.dumps(content | {"choices": {}, "version": True})
    yield json.dumps(content | {"choices": [1]})
    for name in choice:
        yield json.dumps(content | {"choices": [{key: value for key, value in choice.items() if key != name}]})
    yield changed(algo="fast")
    yield changed(algo="auto")
    yield changed(algo=STATIC, math_type="default")
    yield changed(T=0)
    yield changed(T="3")
    yield changed(ragged=1)
    yield changed(spec=choice["spec"] | {"algo": STANDARD})
    yield changed(spec=choice["spec"] | {"num_layers": 0})
    yield changed(trials=[])
    yield changed(trials=[choice["trials"][0] | {"time_us": -1}])
    yield changed(trials=[trial | {"time_us": None} for trial in choice["trials"]])
    yield json.dumps(content).replace("1000.0", "NaN")


def test_a_bad_file_is_an_error_that_names_it_and_stays_as_it_is(play, tmp_path, monkeypatch):
    tuned(play)
    path = tmp_path / "choices.json"
    ops.save_algorithm_choices(path)
    bad = list(spoilt(json.loads(path.read_text())))
    assert len(bad) >= 30
    for text in bad:
        path.write_text(text)
        for use in (ops.load_algorithm_choices, ops.save_algorithm_choices, ops.algorithm_choices):
            with pytest.raises(ArgumentError, match=r"choices\.json"):
                use(path)
        with monkeypatch.context() as patch:
            patch.setenv(CACHE_VARIABLE, str(path))
            with pytest.raises(ArgumentError, match=CACHE_VARIABLE):
                gru().prepare(5, 5, device="cuda:0")
        assert path.read_text() == text
    assert not list(tmp_path.glob("*.tmp"))
    with pytest.raises(OSError, match="missing"):
        ops.load_algorithm_choices(tmp_path / "missing")


def a_choice(T, algo=STANDARD):
    kind = CallKind("host memory", 92800, RNNSpec("gru", 1, 3, 4, algo="auto"), T, 2, False, True, False)
    trials = tuple(AlgorithmTrial(each, MathType.FMA, 1.0) for each in ALGORITHMS)
    return AlgorithmChoice(kind, Algorithm(algo), MathType.FMA, trials)


def test_what_another_process_chose_counts_for_the_same_kind_of_call_alone(tmp_path, monkeypatch):
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "choices.json"))
    theirs, same = a_choice(3, STATIC), a_choice(3, SMALL_H)
    other = dataclasses.replace(same, kind=dataclasses.replace(same.kind, B=5))
    ChoiceBook("host memory", 92800).add(theirs)
    book = ChoiceBook("host memory", 92800)
    assert book.add(same) == theirs
    assert book.add(other) == other
    assert set(read(tmp_path / "choices.json")) == {theirs, other}


def _add_many(path, worker, barrier):
    os.environ[CACHE_VARIABLE] = str(path)
    book = ChoiceBook("host memory", 92800)
    barrier.wait()
    for i in range(10):
        book.add(a_choice(100 * worker + i + 1))
    agreed = book.add(a_choice(5000, ALGORITHMS[worker]))
    Path(f"{path}.{worker}").write_text(agreed.algo)


def test_processes_that_write_at_once_lose_nothing_and_agree(tmp_path):
    path, workers = tmp_path / "choices.json", 4
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(workers)
    processes = [context.Process(target=_add_many, args=(path, i, barrier), daemon=True) for i in range(workers)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * workers
    assert {c.kind.T for c in read(path)} == {100 * w + i + 1 for w in range(workers) for i in range(10)} | {5000}
    (shared,) = [choice.algo for choice in read(path) if choice.kind.T == 5000]
    assert {Path(f"{path}.{worker}").read_text() for worker in range(workers)} == {shared}


def test_a_lock_that_is_a_link_is_not_gone_through(play, tmp_path):
    tuned(play)
    path = tmp_path / "choices.json"
    with locked(path):
        (lock,) = tmp_path.glob(".pycudnnrnn-*.lock")
    lock.unlink()
    lock.symlink_to("elsewhere")
    with pytest.raises(OSError, match="symbolic links"):
        ops.save_algorithm_choices(path)
    assert not (tmp_path / "elsewhere").exists()


def test_a_write_that_fails_leaves_the_file_as_it_was(play, tmp_path, monkeypatch):
    tuned(play)
    path = tmp_path / "choices.json"
    ops.save_algorithm_choices(path)
    before = path.read_bytes()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    gru().prepare(7, 2, device="cuda:0")
    with pytest.raises(OSError, match="No space"):
        ops.save_algorithm_choices(path)
    assert path.read_bytes() == before
