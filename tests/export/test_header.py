from export_help import loaded

from spikehtr.export.exported_reader import describe, parse


def test_an_exported_file_keeps_the_temperature_of_its_model():
    model = loaded(timesteps=1)
    assert parse(describe(model, 1, "fp32"), "m.onnx").temperature == 1.0
    calibrated = model._replace(notes=model.notes | {"temperature": 1.5})
    assert parse(describe(calibrated, 1, "fp32"), "m.onnx").temperature == calibrated.temperature == 1.5
