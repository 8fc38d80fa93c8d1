import json

from PIL import Image
from test_loop import SETTINGS

from conftest import draw_line
from spikehtr.config import Config
from spikehtr.training.devices import make_fabric
from spikehtr.training.job import Job, carry_out


def test_lines_that_reading_left_out_are_remarked_on(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("SPIKEHTR_CACHE", str(tmp_path / "cache"))
    source = tmp_path / "source"
    source.mkdir()
    for number in range(10):
        Image.fromarray(draw_line("ink", seed=number)).save(source / f"{number}.png")
        (source / f"{number}.txt").write_text("ink")
    (source / "3.png").write_bytes(b"no image")
    job = Job(Config().with_overrides(SETTINGS | {"training.epochs": 2}), [source], tmp_path / "run", max_steps=1)
    job.claim_folder()
    said: list[str] = []
    carry_out(job, make_fabric(), said.append)
    remark = f"1 line or file of {source} left out; `spikehtr data check {source}` lists them"
    assert said[0] == remark
    assert json.loads((tmp_path / "run" / "data.json").read_text())["remarks"][0] == remark
    assert capsys.readouterr().err == ""
