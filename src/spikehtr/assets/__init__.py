"""Files shipped with the package: a trained model, samples, and the open fonts they were drawn with (each beside its
licence)."""

from pathlib import Path

HERE = Path(__file__).parent
SAMPLE_LINE = HERE / "sample-line.png"
SAMPLE_PAGE = HERE / "sample-page.jpg"
REAL_PAGE = HERE / "labour-court-1858.jpg"  # a page of a register; labour-court-1858.md says whose
SAMPLE_TEXT = HERE / "sample-page.txt"  # what stands on it: a line a line, an empty one between regions
FONTS = HERE / "fonts"
MODEL = HERE / "model.safetensors"  # the bundled model (tools/bundle.py put it there)
LANGUAGE_MODEL = HERE / "language-model.safetensors"  # made of the texts the bundled model was trained on
SEGMENTER = HERE / "segmenter.safetensors"  # the bundled line network (tools/bundle_segmenter.py put it there)
SEGMENTER_CARD = HERE / "segmenter.md"
CARD = HERE / "model.md"  # and what there is to say of it
