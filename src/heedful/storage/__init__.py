"""Files of trained models: model folders, safetensors weights, atomic writes. Nothing here computes."""
