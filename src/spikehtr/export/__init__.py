"""A trained network in other people's formats: ONNX, torch.export, NIR. Each file is checked against `model/`."""
