"""The page of `relaxc explain --html`: groups, categories, facts, in a real browser."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

import relaxc
from relaxc.drawing.graph_section import box_facts, graph_groups
from relaxc.report import Report
from tests.relaxc.small_models import small_cnn

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome-headless-shell")
BROWSER = next((path for name in BROWSERS if (path := shutil.which(name))), None)
in_browser = pytest.mark.skipif(BROWSER is None, reason=f"none of {', '.join(BROWSERS)} is here")


@pytest.fixture(scope="module")
def report() -> Report:
    return relaxc.compile(small_cnn(), threads=1).report


@pytest.fixture(scope="module")
def page(report: Report, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "report.html"
    report.to_html(path)
    return path


def test_groups_hold_every_lowered_operator_once(report: Report) -> None:
    groups = graph_groups(report)
    calls = [group for group in groups if group.details]
    assert len(calls) == sum(kernel["calls"] for kernel in report.kernels)
    names = [member["name"] for group in groups for member in group.members]
    assert sorted(names) == sorted(node["name"] for node in report.graphs["lower"]["nodes"])
    (residual,) = [group for group in groups if group.name == "r2"]
    operators = [re.sub(r"\d+$", "", member["op"]) for member in residual.members]
    assert operators == ["conv2d_winograd", "add", "add", "relu"]
    assert residual.members[0]["category"] == "complex_out_fusable"
    assert residual.members[-1]["category"] == "elementwise"


def test_a_box_tells_kernel_rule_costs_and_what_was_declined(report: Report) -> None:
    groups = graph_groups(report)
    facts = dict(box_facts(report, groups)["r2"])
    assert facts["imported operator"] == "nn.relu" and facts["result"] == "float32[1,16,16,16]"
    assert facts["schedule rule"] == "winograd_conv2d" and "→ add" in facts["operators"]
    assert int(facts["floating-point operations"].replace(",", "")) > 300_000
    noted = Report(**{**vars(report), "declined": [("some_pass", "r2", "it <has> another reader")]})
    assert ("declined", "it <has> another reader") in box_facts(noted, groups)["r2"]
    assert "it &lt;has&gt; another reader" in noted.to_html()


def test_operators_that_did_not_survive_are_marked(page: Path) -> None:
    text = page.read_text()
    norms = re.findall(r'class="node (\w+)" data-key="\w+_n_BatchNormalization"', text)
    assert norms == ["gone"] * 5
    assert re.search(r'class="node complex_out_fusable" data-key="c3_c"', text) is None
    for view in ("fused", "kernels", "imported"):
        assert f'id="view-{view}"' in text


def test_the_page_needs_nothing_from_outside(page: Path) -> None:
    text = page.read_text()
    assert "http" not in text and "src=" not in text and "@import" not in text


def test_a_loaded_model_still_has_its_picture(report: Report, tmp_path: Path) -> None:
    again = Report.from_dict(report.to_dict())
    assert again.to_html() == report.to_html()


def browse(page: Path, folder: Path, fragment: str, *flags: str) -> subprocess.CompletedProcess:
    command = [
        *(str(BROWSER), "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"),
        *("--window-size=1300,1000", "--virtual-time-budget=2000", "--enable-logging=stderr"),
        *(f"--user-data-dir={folder / 'profile'}", *flags, f"{page.as_uri()}#{fragment}"),
    ]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def console(done: subprocess.CompletedProcess) -> list[str]:
    return [line for line in done.stderr.splitlines() if "CONSOLE" in line]


@in_browser
def test_the_browser_draws_it_without_a_complaint(page: Path, tmp_path: Path) -> None:
    picture, blank = tmp_path / "page.png", tmp_path / "blank.png"
    done = browse(page, tmp_path, "", f"--screenshot={picture}")
    assert console(done) == []
    (tmp_path / "blank.html").write_text("<!doctype html><title>blank</title>")
    browse(tmp_path / "blank.html", tmp_path, "", f"--screenshot={blank}")
    assert picture.stat().st_size > 8 * blank.stat().st_size


@in_browser
def test_a_complaint_would_be_seen(tmp_path: Path) -> None:
    (tmp_path / "broken.html").write_text("<!doctype html><script>missing()</script>")
    done = browse(tmp_path / "broken.html", tmp_path, "", "--dump-dom")
    assert any("missing is not defined" in line for line in console(done))


@in_browser
def test_a_tensor_is_chosen_and_described_by_the_script(page: Path, tmp_path: Path) -> None:
    done = browse(page, tmp_path, "r2", "--dump-dom")
    assert console(done) == []
    assert re.search(r'class="node kernel chosen" data-key="r2"', done.stdout)
    assert re.search(r'<div class="details" id="details"><h3>r2</h3>.*winograd_conv2d', done.stdout)
    assert 'class="near"' in done.stdout
    assert re.search(r'<g class="scene" transform="translate\([-\d.]+,[-\d.]+\) scale', done.stdout)


@in_browser
def test_a_view_opens_by_its_name(page: Path, tmp_path: Path) -> None:
    dom = browse(page, tmp_path, "imported", "--dump-dom").stdout
    assert re.search(r'<svg hidden="" id="view-fused"|<svg id="view-fused"[^>]*hidden', dom)
    assert not re.search(r'<svg hidden="" id="view-imported"', dom)
