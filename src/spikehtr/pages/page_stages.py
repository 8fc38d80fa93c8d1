"""What is done to a page before its lines are read, and after: tasks for any process, which need no network."""

from __future__ import annotations

from typing import NamedTuple

from PIL import Image

from spikehtr.data.geometry import FittedLine, LineFitting
from spikehtr.errors import SpikeHTRError
from spikehtr.pages.given import RegionPlace
from spikehtr.pages.page_format import PageFormat
from spikehtr.pages.page_lines import ReadBy, ReadOptions, SegmentedPage, assemble, cut_lines, open_sheet
from spikehtr.pages.page_source import Failure, PageJob
from spikehtr.results import Line, Page


class PageResult(NamedTuple):
    """What became of a page."""

    job: PageJob
    result: Page | Failure
    gray: Image.Image | None
    remarks: list[str]
    part: int | None = None  # of which page of its file, from 0, an image is to be made beside the result
    shown: str | None = None  # the result in the format asked for


class PreparedPage(NamedTuple):
    """A page whose lines are cut out."""

    sheet: SegmentedPage
    regions: list[RegionPlace]
    lines: list[FittedLine]


def prepare_page(job: PageJob, options: ReadOptions, fitting: LineFitting | None) -> PreparedPage | Failure:
    """The first stage. Without a fitting the lines are only found. A page that cannot be used is a Failure."""
    try:
        sheet = open_sheet(job, options)
        regions, lines = cut_lines(fitting, sheet) if fitting else (sheet.regions, [])
    except SpikeHTRError as error:
        return Failure(job.title, str(error))
    except Exception as error:  # one page must not stop the others, whatever is wrong with it
        return Failure(job.title, f"{type(error).__name__}: {error}")
    return PreparedPage(sheet if options.keep_image else sheet._replace(gray=None), regions, lines)


def finish_page(
    job: PageJob, page: PreparedPage, lines: list[Line | None], by: ReadBy, form: PageFormat | None
) -> PageResult:
    """The last stage."""
    try:
        result = assemble(page.sheet, page.regions, lines, by)
        shown = form.shown(result) if form else None
    except Exception as error:  # as above
        return PageResult(job, Failure(job.title, f"{type(error).__name__}: {error}"), None, [])
    return PageResult(job, result, page.sheet.gray, page.sheet.remarks, page.sheet.part, shown)
