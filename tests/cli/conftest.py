"""The command line, called in this process."""

import sys

import pytest

from pycudnnrnn.cli import main


@pytest.fixture
def run(monkeypatch, capsys, tmp_path):
    """Run `pycudnnrnn` in `tmp_path`; return its exit code, standard output and standard error."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COLUMNS", raising=False)

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["pycudnnrnn", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capsys.readouterr()
        assert "Traceback" not in err
        return ended.value.code or 0, out, err

    return call
